"""The numbers of rows, taken out of their text: what metrics are made of, at a third of what decoding the rows costs."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from collector import jsonl
from merge.rows.blocks import RowBlock
from merge.rows.decoders import COST, COSTS, Object, decode_any, number_names, usage_of
from merge.rows.plans import ExactPlan, RowPlans

#: Marks in the column of answers: the row has none, and there is no row at all.
NO_ANSWER: Final = 0
NO_ROW: Final = 1
#: A row that belongs to no subset.
NO_SUBSET: Final = 0
#: How the columns of a rollout's cost begin, which are no metrics by themselves.
PERFORMANCE: Final = "_ng_perf/"
#: What a reply of the model is called in a row that says what was read out of it.
EXTRACTED: Final = "extracted_answer"

_EMPTY: Final[dict[str, Any]] = {}
#: Rows that are read without a guess after one whose shape was guessed wrong.
_AFTER_A_MISS: Final = 16


class _ExactReaderNeededError(ValueError):
    """The fast reader passed over what is asked for."""


class UnreadableRowError(ValueError):
    """The row of the rollout with ``key`` says what no reader takes: a number that no float holds, bytes that are no UTF-8."""

    def __init__(self, key: int, why: str) -> None:
        super().__init__(key, why)
        self.key = key
        self.why = why


#: What sends a row to the slower reader.
_UNUSUAL: Final = (msgspec.DecodeError, OverflowError, _ExactReaderNeededError)


class RowNumbers(NamedTuple):
    """Columns over the unmasked rows of one block; absent is NaN. ``keys`` and ``masked`` rise.

    ``answers`` has a number for each of ``keys``: equal for equal answers of one process and those forked from it, or a mark.
    """

    keys: array[int]
    masked: array[int]
    answers: array[int]
    has_answers: bool
    columns: dict[str, array[float]]
    #: Like ``answers``, with the name of each number; empty unless subsets were asked for.
    subsets: array[int]
    subset_names: dict[int, str]


#: What a row gives: the names of its numbers, the numbers, whether it is masked, its answer, None without such a key, and the
#: name of its subset, None without one.
_Found: TypeAlias = tuple[tuple[str, ...], tuple[float, ...], bool, int | None, str | None]


class NumberReader:
    """Takes numbers out of rows, and remembers the shapes that it met.

    ``answer_field`` is what majority votes compare; ``subset_field`` names the subset of a row, if subsets are wanted.
    """

    def __init__(self, answer_field: str = EXTRACTED, subset_field: str | None = None) -> None:
        self._answer_field = answer_field
        self._subset_field = subset_field
        #: One object for equal fields, as in the plans.
        self._with_cost: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._plans = RowPlans()
        #: Both from the row before: the next one is nearly always like it.
        self._exact: ExactPlan | None = None
        self._fields: tuple[str, ...] = ()
        self._without_guess = 0

    def read(self, block: RowBlock) -> RowNumbers:
        """The numbers of every row in ``block``. Raises UnreadableRowError."""
        try:
            return self._columns(block.keys, list(map(self._read, block.lines)))
        except _UNUSUAL:
            return self._columns(block.keys, list(self._one_by_one(block)))

    def _columns(self, keys: Sequence[int], found: Sequence[_Found]) -> RowNumbers:
        made = _columns(keys, found)
        if self._subset_field is not None:
            names = [row[4] for row in found if not row[2]]
            made.subset_names.update({_name_number(name): name for name in set(names) if name is not None})
            made.subsets.extend([NO_SUBSET if name is None else _name_number(name) for name in names])
        return made

    def _read(self, line: memoryview) -> _Found:
        exact = self._exact
        if exact is None:
            return self._read_any(line)
        if self._without_guess:
            self._without_guess -= 1
            return self._read_any(line)
        try:
            row = exact.decode(line)
        except msgspec.ValidationError:
            self._without_guess = _AFTER_A_MISS
            return self._read_any(line)
        fields, values = self._fields, exact.numbers(row)
        if exact.cost is not None:
            fields, values = self._costed(fields, values, _costs(exact.cost(row)))
        is_masked = exact.is_masked is not None and exact.is_masked(row)
        answer = None if exact.answer is None else _answer_number(exact.answer(row))
        return fields, values, is_masked, answer, None if exact.subset is None else _subset_name(exact.subset(row))

    def _read_any(self, line: memoryview) -> _Found:
        row = decode_any(line)
        usage = usage_of(row)
        plan = self._plans.plan(row, usage)
        plan.see(row, answer=self._answer_field, subset=self._subset_field)
        self._exact, self._fields = plan.exact, plan.fields
        fields, values = plan.fields, plan.own(row) + plan.of_usage(usage)
        cost = row.get(COST)
        if type(cost) is Object:
            fields, values = self._costed(fields, values, _costs(cost))
        return fields, values, row.get("mask_sample") is True, self._answer(row), self._subset(row)

    def _costed(
        self, fields: tuple[str, ...], values: tuple[float, ...], cost: dict[str, Any]
    ) -> tuple[tuple[str, ...], tuple[float, ...]]:
        numbers = {PERFORMANCE + name: value for name, value in _plain_numbers(cost).items() if name in COSTS}
        every = (*fields, *numbers)
        return self._with_cost.setdefault(every, every), (*values, *numbers.values())

    def _answer(self, row: dict[str, Any]) -> int | None:
        return _answer_number(row[self._answer_field]) if self._answer_field in row else None

    def _subset(self, row: dict[str, Any]) -> str | None:
        return None if self._subset_field is None else _subset_name(row.get(self._subset_field))

    def _one_by_one(self, block: RowBlock) -> Iterator[_Found]:
        for key, line in zip(block.keys, block.lines, strict=True):
            try:
                found = self._read_any(line)
                array("d", found[1])
            except _UNUSUAL:
                found = self._read_exactly(key, bytes(line))
            yield found

    def _read_exactly(self, key: int, line: bytes) -> _Found:
        """The same by the slower reader, for text that the fast one refuses (a lone surrogate) and unexpected shapes."""
        try:
            row = jsonl.loads(line)
        except ValueError as error:
            raise UnreadableRowError(key, str(error)) from error
        response = row.get("response")
        usage = response.get("usage") if isinstance(response, dict) else None
        numbers = {**_plain_numbers(row), **_plain_numbers(usage if isinstance(usage, dict) else _EMPTY)}
        cost = row.get(COST)
        fields, values = self._costed(tuple(numbers), tuple(numbers.values()), cost if isinstance(cost, dict) else _EMPTY)
        return fields, values, row.get("mask_sample") is True, self._answer(row), self._subset(row)


def _columns(keys: Sequence[int], found: Sequence[_Found]) -> RowNumbers:
    """Raises OverflowError for a number beyond the range of a float."""
    has_answers = any(row[3] is not None for row in found if not row[2])
    made = RowNumbers(array("q"), array("q"), array("q"), has_answers, {}, array("q"), {})
    begin, count = 0, len(found)
    while begin < count:
        fields, _, is_masked, _, _ = found[begin]
        end = begin + 1
        while end < count and found[end][0] is fields and found[end][2] is is_masked:
            end += 1
        if is_masked:
            made.masked.extend(keys[begin:end])
        else:
            _add(made, keys[begin:end], fields, found[begin:end])
        begin = end
    for column in made.columns.values():
        pad(column, len(made.keys))
    return made


def _add(made: RowNumbers, keys: Sequence[int], fields: tuple[str, ...], rows: Sequence[_Found]) -> None:
    """Neighbouring unmasked rows with the same fields."""
    for name, values in zip(fields, zip(*[row[1] for row in rows], strict=True), strict=True):
        column = made.columns.setdefault(name, array("d"))
        pad(column, len(made.keys))
        column.extend(values)
    made.keys.extend(keys)
    made.answers.extend([row[3] or NO_ANSWER for row in rows])


def pad(column: array[float], count: int) -> None:
    """Make ``column`` as long as ``count``: what rows before did not have is absent."""
    if len(column) < count:
        column.extend([math.nan] * (count - len(column)))


def _costs(cost: Object) -> dict[str, Any]:
    return {name: getattr(cost, name) for name in COSTS}


def _subset_name(value: object) -> str | None:
    return jsonl.escaped(str(value)) if value and isinstance(value, str | int | float) else None


def _name_number(name: str) -> int:
    return hash(name) or 1


def _answer_number(answer: object) -> int:
    """A number that is equal for equal answers of one process, and none of the marks."""
    if answer is None:
        return NO_ANSWER
    if type(answer) is str:
        return hash(answer) or 2
    if isinstance(answer, Object):
        raise _ExactReaderNeededError
    if isinstance(answer, int | float):
        # The hash of -1 is that of -2: numbers are told apart by what they look like.
        held = _float_of(answer)
        number = hash(("number", str(answer) if held is None else repr(held)))
    elif isinstance(answer, list):
        number = hash(b",".join(bytes(m) if isinstance(m, msgspec.Raw) else jsonl.dumps(m) for m in answer))
    else:
        number = hash(jsonl.canonical(answer))
    return number if number not in (NO_ANSWER, NO_ROW) else 2


def _plain_numbers(values: dict[str, Any]) -> dict[str, float]:
    # No mean could be made of a number beyond the range of a float.
    return {jsonl.escaped(name): number for name in number_names(values) if (number := _float_of(values[name])) is not None}


def _float_of(number: float) -> float | None:
    """``number`` as a float; None where none holds it. An integer a little above the largest one is that one, rounded."""
    try:
        return float(number)
    except OverflowError:
        return None

"""The numbers of a projection's rows as columns, filled while the rows pass by.

Memory: 8 bytes a number, 8 a row, and 8 an answer; the rows themselves are not kept. Masked rows are counted and never enter
a column.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from collector import jsonl
from merge.row_blocks import RowBlock
from merge.row_plans import RowPlan, RowPlans, number_names

_LARGEST: Final = sys.float_info.max
#: Marks in the column of answers: the row has none, and there is no row at all.
NO_ANSWER: Final = 0
NO_ROW: Final = 1
#: What a reply of the model is called in a row that says what was read out of it.
EXTRACTED: Final = "extracted_answer"


class _Skipped(msgspec.Struct, frozen=True, gc=False):
    """An object whose members nobody asks for; the decoder passes over them."""


#: Lists are cut into raw members, objects are passed over: a row costs a third of what decoding it costs.
_Member: TypeAlias = int | float | bool | str | list[msgspec.Raw] | None


class _Object(msgspec.Struct, frozen=True, gc=False):
    """Any object of a row; only that of the response may hold a usage."""

    usage: dict[str, _Member | _Skipped] | _Member = None


_decoder: msgspec.json.Decoder[dict[str, _Member | _Object]] = msgspec.json.Decoder(dict[str, _Member | _Object])
_EMPTY: Final[dict[str, Any]] = {}


class _ExactReaderNeededError(ValueError):
    """The fast reader passed over what is asked for."""


#: What sends a row to the slower reader.
_UNUSUAL: Final = (msgspec.DecodeError, OverflowError, _ExactReaderNeededError)


class _Found(NamedTuple):
    """What a row gives. ``values`` belong to ``fields``; ``answer`` is None when the row has no such key."""

    fields: tuple[str, ...]
    values: tuple[float, ...]
    is_masked: bool
    answer: int | None


class RowTable:
    """Columns by field name; absent is NaN, which no JSON row can hold. ``keys`` names the row at each position.

    ``answer_field`` names what is compared by majority votes.
    """

    def __init__(self, answer_field: str = EXTRACTED) -> None:
        self.keys: array[int] = array("q")
        self.masked: array[int] = array("q")
        #: One number for each of ``keys``: equal for equal answers, or a mark.
        self.answers: array[int] = array("q")
        self.has_answers = False
        self.answer_field = answer_field
        self._columns: dict[str, array[float]] = {}
        self._plans = RowPlans()

    def see(self, block: RowBlock) -> None:
        """Take the numbers of every row in ``block``."""
        try:
            found = [self._read(row) for row in _decoder.decode_lines(block.data)]
            runs = list(_runs(block.keys, found))
        except _UNUSUAL:
            found = list(self._one_by_one(block))
            runs = list(_runs(block.keys, found))
        for run in runs:
            self._add(run)
        self.masked.extend(key for key, row in zip(block.keys, found, strict=True) if row.is_masked)

    @property
    def fields(self) -> list[str]:
        """The names of all columns, sorted."""
        return sorted(self._columns)

    def column(self, name: str) -> array[float]:
        """One value for each of ``keys``, NaN where the row has none."""
        column = self._columns.get(name)
        if column is None:
            return array("d", [math.nan]) * len(self.keys)
        self._pad(column)
        return column

    def with_zeros(self, field: str, keys: Sequence[int]) -> RowTable:
        """A table with a row more for each of ``keys``, none of which it holds: ``field`` is 0 there, all others are absent."""
        made = RowTable(self.answer_field)
        count = len(self.keys)
        every = [*self.keys, *keys]
        order = sorted(range(len(every)), key=every.__getitem__)
        made.keys = array("q", [every[i] for i in order])
        made.masked = self.masked
        made.has_answers = self.has_answers
        made.answers = array("q", [self.answers[i] if i < count else NO_ROW for i in order])
        for name in {*self._columns, field}:
            column, absent = self.column(name), 0.0 if name == field else math.nan
            made._columns[name] = array("d", [column[i] if i < count else absent for i in order])
        return made

    def _read(self, row: dict[str, Any]) -> _Found:
        response = row.get("response")
        found = response.usage if isinstance(response, _Object) else None
        usage: dict[str, Any] = found if isinstance(found, dict) else _EMPTY
        plan: RowPlan = self._plans.plan(row, usage)
        values = plan.own(row)
        if plan.of_usage is not None:
            values += plan.of_usage(usage)
        answer = _answer_number(row[self.answer_field]) if self.answer_field in row else None
        return _Found(plan.fields, values, row.get("mask_sample") is True, answer)

    def _one_by_one(self, block: RowBlock) -> Iterator[_Found]:
        at = 0
        for length in block.lengths:
            line = block.data[at : at + length]
            try:
                found = self._read(_decoder.decode(line))
                array("d", found.values)
            except _UNUSUAL:
                found = self._read_exactly(line)
            yield found
            at += length

    def _read_exactly(self, line: bytes) -> _Found:
        """The same by the slower reader, for text that the fast one refuses (a lone surrogate) and unexpected shapes."""
        row = jsonl.loads(line)
        response = row.get("response")
        usage = response.get("usage") if isinstance(response, dict) else None
        numbers = {**_plain_numbers(row), **_plain_numbers(usage if isinstance(usage, dict) else _EMPTY)}
        answer = _answer_number(row[self.answer_field]) if self.answer_field in row else None
        return _Found(tuple(numbers), tuple(numbers.values()), row.get("mask_sample") is True, answer)

    def _add(self, run: _Run) -> None:
        for name, values in zip(run.fields, run.columns, strict=True):
            column = self._columns.get(name)
            if column is None:
                column = self._columns[name] = array("d")
            self._pad(column)
            column.extend(values)
        self.keys.extend(run.keys)
        self.answers.extend(NO_ANSWER if answer is None else answer for answer in run.answers)
        self.has_answers = self.has_answers or any(answer is not None for answer in run.answers)

    def _pad(self, column: array[float]) -> None:
        if len(column) < len(self.keys):
            column.extend([math.nan] * (len(self.keys) - len(column)))


class _Run(NamedTuple):
    """Neighbouring unmasked rows with the same fields."""

    fields: tuple[str, ...]
    keys: list[int]
    columns: list[array[float]]
    answers: list[int | None]


def _runs(keys: Sequence[int], found: Sequence[_Found]) -> Iterator[_Run]:
    """Raises OverflowError for a number beyond the range of a float."""
    begin, count = 0, len(found)
    while begin < count:
        fields, _, is_masked, _ = found[begin]
        end = begin + 1
        while end < count and found[end][0] is fields and found[end][2] is is_masked:
            end += 1
        if not is_masked:
            rows = found[begin:end]
            columns = [array("d", values) for values in zip(*[row[1] for row in rows], strict=True)]
            yield _Run(fields, list(keys[begin:end]), columns, [row[3] for row in rows])
        begin = end


def _answer_number(answer: object) -> int:
    """A number that is equal for equal answers of one process, and none of the marks."""
    if answer is None:
        return NO_ANSWER
    if type(answer) is str:
        return hash(answer) or 2
    if isinstance(answer, _Object):
        raise _ExactReaderNeededError
    if isinstance(answer, int | float):
        # The hash of -1 is that of -2: numbers are told apart by what they look like.
        number = hash(("number", repr(float(answer)) if abs(answer) < _LARGEST else str(answer)))
    elif isinstance(answer, list):
        number = hash(b",".join(bytes(m) if isinstance(m, msgspec.Raw) else jsonl.dumps(m) for m in answer))
    else:
        number = hash(jsonl.canonical(answer))
    return number if number not in (NO_ANSWER, NO_ROW) else 2


def _plain_numbers(values: dict[str, Any]) -> dict[str, float]:
    # A number beyond the range of a float is none that a mean could be made of.
    return {name: float(values[name]) for name in number_names(values) if abs(values[name]) < _LARGEST}

"""How the numbers of a row are taken out of it. Rows of one shape are many, so each shape is looked at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from operator import itemgetter
from typing import Any, Final, NamedTuple

from merge.rows.decoders import COST, ExactRow, Getter, Object, exact_row, number_names

#: Shapes remembered; rows with keys of their own each would fill the memory otherwise.
_MOST: Final = 512
#: Rows of one shape, one after the other, that make a decoder of their own worth its price.
_ENOUGH: Final = 8
_MASK: Final = "mask_sample"


class ExactPlan(NamedTuple):
    """How rows of one exact shape are read: their decoder, and how to get what is wanted of them, None for what none has."""

    decode: Callable[[Any], Any]
    numbers: Getter
    is_masked: Callable[[Any], Any] | None
    answer: Callable[[Any], Any] | None
    subset: Callable[[Any], Any] | None
    cost: Callable[[Any], Object] | None


class RowPlan:
    """The fields that rows of one shape have, and how to get their values: first those of the row, then those of its usage.

    Where both have a field it is that of the usage: what was spent, not what a dataset says of its own length.
    """

    __slots__ = ("_seen", "_wanted", "exact", "fields", "of_usage", "own", "own_names", "usage_names")

    def __init__(self, fields: tuple[str, ...], own: list[str], of_usage: list[str]) -> None:
        self.fields = fields
        self.own_names, self.usage_names = own, of_usage
        self.own, self.of_usage = _getter(own), _getter(of_usage)
        self.exact: ExactPlan | None = None
        self._seen = 0

    def see(self, row: Mapping[str, Any], *, answer: str, subset: str | None) -> None:
        """Another row of this shape, at last a reason for ``exact``."""
        self._seen += 1
        if self._seen == _ENOUGH:
            made = exact_row(row, {_MASK, answer} if subset is None else {_MASK, answer, subset})
            self.exact = None if made is None else self._exact(made, row, answer, subset)

    def _exact(self, made: ExactRow, row: Mapping[str, Any], answer: str, subset: str | None) -> ExactPlan:
        return ExactPlan(
            decode=made.decode,
            numbers=made.values(self.own_names, self.usage_names),
            is_masked=made.value(_MASK) if isinstance(row.get(_MASK), bool) else None,
            answer=made.value(answer),
            subset=made.value(subset),
            cost=made.value(COST) if isinstance(row.get(COST), Object) else None,
        )


class RowPlans:
    """The plans of all shapes that occur."""

    def __init__(self) -> None:
        self._plans: dict[tuple[object, ...], RowPlan] = {}
        #: One object for equal fields, so that rows of different shapes and one set of fields are stored together.
        self._fields: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._last_shape: tuple[object, ...] = ()
        self._last = RowPlan((), [], [])

    def plan(self, row: Mapping[str, Any], usage: Mapping[str, Any]) -> RowPlan:
        """The plan for rows with the keys and types of ``row`` and of its ``usage``."""
        shape = (tuple(row), tuple(map(type, row.values())), tuple(usage), tuple(map(type, usage.values())))
        # Nearly always that of the row before; to compare is cheaper than to look up.
        if shape != self._last_shape:
            plan = self._plans.get(shape)
            if plan is None:
                if len(self._plans) >= _MOST:
                    self._plans.clear()
                plan = self._plans[shape] = self._made(row, usage)
            self._last_shape, self._last = shape, plan
        return self._last

    def _made(self, row: Mapping[str, Any], usage: Mapping[str, Any]) -> RowPlan:
        more = number_names(usage)
        own = [name for name in number_names(row) if name not in more]
        fields = (*own, *more)
        return RowPlan(self._fields.setdefault(fields, fields), own, more)


def _getter(names: Collection[str]) -> Getter:
    if not names:
        return lambda _: ()
    if len(names) == 1:
        (name,) = names
        return lambda values: (values[name],)
    return itemgetter(*names)

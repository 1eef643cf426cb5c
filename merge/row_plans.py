"""How the numbers of a row are taken out of it. Rows of one shape are many, so each shape is looked at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

#: Says whether a row is a measurement; it measures nothing.
FLAGS: Final = frozenset({"mask_sample", "execute_only"})
_NUMBERS: Final = frozenset({int, float, bool})
#: Shapes remembered; rows with keys of their own each would fill the memory otherwise.
_MOST: Final = 512
_NOTHING: Final[Mapping[str, Any]] = {}

Getter: TypeAlias = Callable[[Mapping[str, Any]], tuple[Any, ...]]


class RowPlan(NamedTuple):
    """The fields that rows of one shape have, and how to get their values: first those of the row, then those of its usage.

    Where both have a field it is that of the usage: what was spent, not what a dataset says of its own length.
    """

    fields: tuple[str, ...]
    own: Getter
    of_usage: Getter


class RowPlans:
    """The plans of all shapes that occur."""

    def __init__(self) -> None:
        self._plans: dict[tuple[object, ...], RowPlan] = {}
        #: One object for equal fields, so that rows of different shapes and one set of fields are stored together.
        self._fields: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._last_shape: tuple[object, ...] = ()
        self._last = RowPlan((), _getter([]), _getter([]))

    def plan(self, row: Mapping[str, Any], usage: Mapping[str, Any] = _NOTHING) -> RowPlan:
        """The plan for rows with the keys and types of ``row`` and ``usage``."""
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
        return RowPlan(self._fields.setdefault(fields, fields), _getter(own), _getter(more))


def number_names(values: Mapping[str, Any]) -> list[str]:
    """The names of numbers and booleans that may be metrics: no flag, and none that begins with an underscore."""
    return [name for name, value in values.items() if type(value) in _NUMBERS and name[:1] != "_" and name not in FLAGS]


def _getter(names: list[str]) -> Getter:
    if not names:
        return lambda _: ()
    if len(names) == 1:
        (name,) = names
        return lambda values: (values[name],)
    return itemgetter(*names)

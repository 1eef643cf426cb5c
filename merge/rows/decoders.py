"""Rows decoded as far as their numbers need it: any row, and for half of that, rows of one exact shape."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, TypeAlias

import msgspec

#: Members that say whether a row is a measurement; they measure nothing.
FLAGS: Final = frozenset({"mask_sample", "execute_only"})
RESPONSE: Final = "response"
#: What NeMo Gym writes of a rollout's cost.
COST: Final = "ng_perf"
_NUMBERS: Final = frozenset({int, float, bool})
#: Members of the largest object that is worth a type of its own.
_MOST_MEMBERS: Final = 256

_Line: TypeAlias = bytes | memoryview
#: Takes some values out of a decoded row.
Getter: TypeAlias = Callable[[Any], tuple[Any, ...]]


class Skipped(msgspec.Struct, frozen=True, gc=False):
    """An object whose members nobody asks for; the decoder passes over them."""


#: Lists are cut into raw members, objects are passed over.
_Member: TypeAlias = int | float | bool | str | list[msgspec.Raw] | None
_Any: TypeAlias = _Member | Skipped


class Object(msgspec.Struct, frozen=True, gc=False):
    """Any object of a row: ``usage`` matters where it is the response, all else where it is ``ng_perf``."""

    usage: dict[str, _Member | Skipped] | _Member = None
    num_turns: _Any = None
    token_observability_coverage: _Any = None
    prompt_tokens: _Any = None
    cached_prompt_tokens: _Any = None
    completion_tokens: _Any = None
    reasoning_tokens: _Any = None
    total_latency_ms: _Any = None


COSTS: Final = tuple(name for name in Object.__struct_fields__ if name != "usage")
_any_row: Final[msgspec.json.Decoder[dict[str, _Member | Object]]] = msgspec.json.Decoder(dict[str, _Member | Object])


def decode_any(line: _Line) -> dict[str, Any]:
    """The members of the row in ``line``. Raises msgspec.DecodeError for what the fast decoder does not read."""
    return _any_row.decode(line)


def usage_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The usage in the response of a decoded ``row``; empty without one."""
    response = row.get(RESPONSE)
    found = response.usage if type(response) is Object else None
    return found if type(found) is dict else {}


def is_metric(name: str) -> bool:
    """Whether a number called ``name`` may be a metric: it is no flag, and does not begin with an underscore."""
    return name[:1] != "_" and name not in FLAGS


def number_names(values: Mapping[str, Any]) -> list[str]:
    """The names of numbers and booleans that may be metrics."""
    return [name for name, value in values.items() if type(value) in _NUMBERS and is_metric(name)]


@dataclass(frozen=True, slots=True)
class ExactRow:
    """A decoder for rows of one shape: the same members as the row it was made for, with values of the same kinds.

    ``decode`` raises msgspec.ValidationError for any other row: what might be a metric there must not be passed over.
    """

    decode: Callable[[_Line], Any]
    _of_row: Mapping[str, str]
    _of_usage: Mapping[str, str]

    def values(self, own: Collection[str], of_usage: Collection[str]) -> Getter:
        """Gets the values of members of the row, then those of its usage."""
        names = [*(self._of_row[name] for name in own), *(self._of_usage[name] for name in of_usage)]
        if not names:
            return lambda _: ()
        found = attrgetter(*names)
        return found if len(names) > 1 else lambda row: (found(row),)

    def value(self, name: str | None) -> Callable[[Any], Any] | None:
        """Gets the value of one member; None when the row has none of this name."""
        place = None if name is None else self._of_row.get(name)
        return None if place is None else attrgetter(place)


def exact_row(row: Mapping[str, Any], wanted: Collection[str]) -> ExactRow | None:
    """The decoder for rows like ``row``, which ``decode_any`` made; None for a shape that no type describes.

    Members called as in ``wanted`` are decoded to what they are, whole numbers to integers; other numbers to floats.
    """
    usage = usage_of(row)
    try:
        kinds = {name: _kind(name, value, is_wanted=name in wanted) for name, value in row.items()}
        if isinstance(row.get(RESPONSE), Object):
            kinds[RESPONSE] = _response_kind(usage)
        decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_struct("Row", kinds))
    except (ValueError, TypeError):
        # A name that no member of such a type can have, or a value of no kind.
        return None
    of_row = {name: f"m{number}" for number, name in enumerate(row)}
    of_usage = {name: f"{of_row[RESPONSE]}.usage.m{number}" for number, name in enumerate(usage)}
    return ExactRow(decoder.decode, of_row, of_usage)


def _kind(name: str, value: object, *, is_wanted: bool) -> Any:
    if not is_wanted and not is_metric(name):
        return msgspec.Raw
    if isinstance(value, Object):
        if is_wanted:
            raise ValueError(name)
        return Object if name == COST else Skipped
    if isinstance(value, Skipped):
        return Skipped
    if isinstance(value, list):
        return list[msgspec.Raw]
    if isinstance(value, int | float) and not isinstance(value, bool) and not is_wanted:
        return float
    return None if value is None else type(value)


def _response_kind(usage: Mapping[str, Any]) -> Any:
    kinds = {name: _kind(name, value, is_wanted=False) for name, value in usage.items()}
    exact = _struct("Usage", kinds)
    if usage:
        return msgspec.defstruct("Response", [("usage", exact)], frozen=True, gc=False)
    # Without one, or with null: any other usage may hold numbers.
    return msgspec.defstruct("Response", [("usage", exact | None, None)], frozen=True, gc=False)


def _struct(name: str, kinds: Mapping[str, Any]) -> Any:
    """An object with exactly these members."""
    if len(kinds) > _MOST_MEMBERS:
        raise ValueError(name)
    members = [(f"m{number}", kind) for number, kind in enumerate(kinds.values())]
    rename = {f"m{number}": member for number, member in enumerate(kinds)}
    return msgspec.defstruct(name, members, rename=rename, frozen=True, gc=False, forbid_unknown_fields=True)

"""One line of rows as every exporter reads it: strict JSON, or a row that is refused with its reason. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, NoReturn

import orjson

from collector import jsonl
from collector.formats import rows

#: Python converts no longer ones unless told to.
_MOST_DIGITS: Final = 4300


class RowError(ValueError):
    """A row that cannot be exported; says why."""


class Place(NamedTuple):
    """Which rollout a row is of, both from 0."""

    task: int
    repeat: int

    def __str__(self) -> str:
        return f"{self.task}-{self.repeat}"


def parse_row(line: bytes) -> dict[str, Any]:
    """The object that ``line`` says, exactly. Texts may hold lone surrogates, integers may have any size.

    Raises RowError for what readers understand differently or lose: bytes that are no UTF-8, a key twice in one object, NaN, a
    number that no float holds, more than ``jsonl.MOST_LEVELS`` levels; and for anything that is no JSON object.
    """
    row = _parse_fast(line)
    if row is None:
        row = _parse_exactly(line)
    if not isinstance(row, dict):
        raise RowError(f"a {type(row).__name__}, not an object")
    return row


def place_of(row: Mapping[str, Any]) -> Place:
    """The rollout that ``row`` is of. Raises RowError."""
    found: list[int] = []
    for key in (rows.TASK_INDEX, rows.ROLLOUT_INDEX):
        value = row.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise RowError(f"{key} is {value!r:.60}, not a number from 0")
        found.append(value)
    return Place(*found)


def _parse_fast(line: bytes) -> Any:
    """The value of a line that says it as orjson would, which is what it reads exactly; None for any other line."""
    try:
        value = orjson.loads(line)
        return value if orjson.dumps(value) == line.rstrip(b"\r\n") else None
    except (ValueError, TypeError):
        return None


def _parse_exactly(line: bytes) -> Any:
    if not line.strip():
        raise RowError("a blank line")
    try:
        value = json.loads(
            line.decode(), object_pairs_hook=_distinct, parse_constant=_refuse, parse_float=_finite, parse_int=_whole
        )
        # Only to see that it can be written again: it is as deep as that.
        jsonl.dumps(value)
    except RecursionError as error:
        raise RowError("invalid JSON (nested too deeply)") from error
    except ValueError as error:
        raise RowError(f"invalid JSON ({error})") from error
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    # Faster readers keep the last of two equal keys, and with it a value that nobody checked.
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {next(key for key in keys if keys.count(key) > 1)!r:.60} occurs twice in one object")
    return found


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text:.40} is larger than any number of 64 bits")
    return value


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"an integer of {len(text)} digits")
    return int(text)

"""The columns of a table of rollouts: found in one pass over the rows, filled in a second one.

A column holds one kind of value. Objects, arrays, and whatever has different kinds in different rows, are JSON text, which is
the row's own bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, Final

import msgspec

from collector import jsonl, rows
from exporters.source import ExportError

#: First in the table where the rows have them.
_FIRST: Final = (rows.TASK_INDEX, rows.ROLLOUT_INDEX, rows.ROLLOUT_ID, rows.ATTEMPT_INDEX, rows.RUN_ID, "reward", "mask_sample")
#: More columns than this are a set of names, not of columns: the data has keys that are values.
MOST_COLUMNS: Final = 2000
_INT64: Final = 1 << 63

_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Kind(StrEnum):
    """What a column holds."""

    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    TEXT = "text"
    JSON = "json"


def members(line: bytes) -> dict[str, bytes]:
    """The members of a row, each as the bytes of its value. Raises ValueError."""
    try:
        return {key: bytes(value) for key, value in _decoder.decode(line).items()}
    except msgspec.ValidationError as error:
        raise ValueError("not an object") from error
    except msgspec.DecodeError:
        # It refuses lone surrogates, which are JSON.
        value = jsonl.loads(line)
        if not isinstance(value, dict):
            raise ValueError("not an object") from None  # noqa: TRY004 - one kind of error for an unusable row
        return {key: jsonl.dumps(item) for key, item in value.items()}


def kinds_of(lines: Iterable[bytes]) -> dict[str, Kind]:
    """The columns of the rows, in the order they stand in the table. Raises ExportError with the line of a broken row."""
    found: dict[str, set[Kind]] = {}
    for number, line in enumerate(lines, start=1):
        try:
            for key, raw in members(line).items():
                kind = _kind(raw)
                if kind is not None:
                    found.setdefault(key, set()).add(kind)
                elif key not in found:
                    found[key] = set()
        except ValueError as error:
            raise ExportError(f"line {number}: {error}.", "Nothing was published.") from error
        if len(found) > MOST_COLUMNS:
            raise ExportError(f"the rows have more than {MOST_COLUMNS} different keys.", "They are no table.")
    first = [key for key in _FIRST if key in found]
    return {key: _common(found[key]) for key in [*first, *sorted(key for key in found if key not in first)]}


def values_of(line: bytes, kinds: dict[str, Kind]) -> Iterator[Any]:
    """The values of one row, a column each; None where the row has none."""
    row = members(line)
    for key, kind in kinds.items():
        raw = row.get(key)
        yield None if raw is None or raw == b"null" else _value(raw, kind)


def _kind(raw: bytes) -> Kind | None:
    match raw[:1]:
        case b'"':
            return Kind.TEXT
        case b"n":
            return None
        case b"t" | b"f":
            return Kind.BOOL
        case b"{" | b"[":
            return Kind.JSON
        case _:
            return _kind_of_number(raw)


def _kind_of_number(raw: bytes) -> Kind:
    if raw.lstrip(b"-").isdigit():
        return Kind.INT if -_INT64 <= int(raw) < _INT64 else Kind.JSON
    return Kind.FLOAT


def _common(kinds: set[Kind]) -> Kind:
    if kinds == {Kind.INT, Kind.FLOAT}:
        return Kind.FLOAT
    return next(iter(kinds)) if len(kinds) == 1 else Kind.JSON


def _value(raw: bytes, kind: Kind) -> Any:
    match kind:
        case Kind.JSON:
            return raw.decode()
        case Kind.TEXT:
            # No table holds half of a surrogate pair.
            return jsonl.loads(raw).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case Kind.FLOAT:
            return float(raw)
        case Kind.INT:
            return int(raw)
        case Kind.BOOL:
            return raw == b"true"

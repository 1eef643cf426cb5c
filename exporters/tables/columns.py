"""The columns of a table of rollouts: found in one pass over the rows, filled in a second one.

A column holds one kind of value. Objects, arrays, and whatever has different kinds in different rows, are JSON text, which is
the row's own bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec

from collector import jsonl
from collector.formats import rows
from exporters.source import ExportError
from exporters.strict_rows import RowError, parse_row

#: First in the table where the rows have them.
_FIRST: Final = (rows.TASK_INDEX, rows.ROLLOUT_INDEX, rows.ROLLOUT_ID, rows.ATTEMPT_INDEX, rows.RUN_ID, "reward", "mask_sample")
#: More columns than this are a set of names, not of columns: the data has keys that are values.
MOST_COLUMNS: Final = 2000
_INT64: Final = 1 << 63
#: Integers beyond it change when they become a float.
_EXACT: Final = 1 << 53

_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Kind(StrEnum):
    """What a column holds."""

    BOOL = "bool"
    INT = "int"
    #: Integers of which at least one is no exact float.
    LONG = "long"
    FLOAT = "float"
    TEXT = "text"
    JSON = "json"


def members(line: bytes) -> dict[str, bytes]:
    """The members of a row that ``parse_row`` accepts, each as the bytes of its value."""
    try:
        return {key: bytes(value) for key, value in _decoder.decode(line).items()}
    except msgspec.DecodeError:
        # It refuses lone surrogates, which are JSON.
        return {key: jsonl.dumps(item) for key, item in parse_row(line).items()}


def kinds_of(lines: Iterable[bytes], where: str | Path = "") -> dict[str, Kind]:
    """The columns of the rows of the file ``where``, in the order they stand in the table.

    Raises ExportError with the line of a broken row, and for rows that are no table.
    """
    found: dict[str, set[Kind]] = {}
    for number, line in enumerate(lines, start=1):
        try:
            parse_row(line)
        except RowError as error:
            raise ExportError(f"line {number}: {error}.", "Nothing was published.", where) from error
        for key, raw in members(line).items():
            kinds = found.setdefault(key, set())
            if (kind := _kind(raw)) is not None:
                kinds.add(kind)
        if len(found) > MOST_COLUMNS:
            raise ExportError(f"the rows have more than {MOST_COLUMNS} different keys.", "They are no table.", where)
    first = [key for key in _FIRST if key in found]
    return {key: _common(found[key]) for key in [*first, *sorted(key for key in found if key not in first)]}


def values_of(line: bytes, kinds: dict[str, Kind]) -> Iterator[Any]:
    """The values of one row, a column each; None where the row has none."""
    row = members(line)
    for key, kind in kinds.items():
        raw = row.get(key)
        yield None if raw is None or raw == b"null" else _value(raw, kind)


def readable(text: str) -> str:
    """``text`` with U+FFFD for each half of a surrogate pair, which no table holds."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


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
    if not raw.lstrip(b"-").isdigit():
        return Kind.FLOAT
    number = int(raw)
    if abs(number) <= _EXACT:
        return Kind.INT
    return Kind.LONG if -_INT64 <= number < _INT64 else Kind.JSON


def _common(kinds: set[Kind]) -> Kind:
    if kinds == {Kind.INT, Kind.FLOAT}:
        return Kind.FLOAT
    if kinds == {Kind.INT, Kind.LONG}:
        return Kind.LONG
    return next(iter(kinds)) if len(kinds) == 1 else Kind.JSON


def _value(raw: bytes, kind: Kind) -> Any:
    match kind:
        case Kind.JSON:
            return raw.decode()
        case Kind.TEXT:
            return readable(jsonl.loads(raw))
        case Kind.FLOAT:
            return float(raw)
        case Kind.INT | Kind.LONG:
            return int(raw)
        case Kind.BOOL:
            return raw == b"true"

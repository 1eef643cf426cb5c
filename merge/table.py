"""The numbers of a projection's rows as columns, filled while the rows pass by.

Memory: 8 bytes a number and 8 a row; the rows themselves are not kept. Masked rows are counted and never enter a column.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from collector import jsonl
from merge.row_blocks import RowBlock

_DIGITS: Final = frozenset(b"-0123456789")
#: Says whether a row is a measurement; it measures nothing.
_FLAGS: Final = frozenset({"mask_sample", "execute_only"})


class _Response(msgspec.Struct, frozen=True):
    usage: dict[str, msgspec.Raw] | None = None


_row_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_response_decoder = msgspec.json.Decoder(_Response)


class RowTable:
    """Columns by field name; absent is NaN, which no JSON row can hold. ``keys`` names the row at each position."""

    def __init__(self) -> None:
        self.keys: array[int] = array("q")
        self.masked: array[int] = array("q")
        self._columns: dict[str, array[float]] = {}

    def see(self, block: RowBlock) -> None:
        """Take the numbers of every row in ``block``."""
        view, at = memoryview(block.data), 0
        for key, length in zip(block.keys, block.lengths, strict=True):
            self._add(key, view[at : at + length])
            at += length

    @property
    def fields(self) -> list[str]:
        """The names of all columns, sorted."""
        return sorted(self._columns)

    def column(self, name: str) -> Sequence[float]:
        """One value for each of ``keys``, NaN where the row has none."""
        column = self._columns.get(name)
        if column is None:
            return array("d", [math.nan]) * len(self.keys)
        self._pad(column)
        return column

    def _add(self, key: int, line: memoryview) -> None:
        numbers, is_masked = row_numbers(line)
        if is_masked:
            self.masked.append(key)
            return
        for name, value in numbers.items():
            column = self._columns.get(name)
            if column is None:
                column = self._columns[name] = array("d")
            if len(column) < len(self.keys):
                self._pad(column)
            column.append(value)
        self.keys.append(key)

    def _pad(self, column: array[float]) -> None:
        column.extend([math.nan] * (len(self.keys) - len(column)))


def row_numbers(line: bytes | memoryview) -> tuple[dict[str, float], bool]:
    """The numbers of one row, those of ``response.usage`` among them, and whether the row is masked.

    Top-level numbers and booleans count, keys that begin with ``_`` do not; a row's own field wins over one of the usage.
    """
    try:
        row = _row_decoder.decode(line)
        response = row.get("response")
        usage = _usage(response) if response is not None else {}
    except msgspec.DecodeError:
        return _row_numbers_exactly(bytes(line))
    own = _numbers(row)
    is_masked = own.pop("mask_sample", 0.0) == 1.0
    return _without_flags({**usage, **own}), is_masked


def _usage(response: msgspec.Raw) -> dict[str, float]:
    return _numbers(_response_decoder.decode(response).usage or {})


def _numbers(values: dict[str, msgspec.Raw]) -> dict[str, float]:
    return {name: value for name, raw in values.items() if name[:1] != "_" and (value := _number(raw)) is not None}


def _number(raw: msgspec.Raw) -> float | None:
    view = memoryview(raw)
    if view[0] in _DIGITS:
        return _finite(float(bytes(view)))
    if view[0] == 0x74:  # the t of true
        return 1.0
    return 0.0 if view[0] == 0x66 else None  # the f of false


def _row_numbers_exactly(line: bytes) -> tuple[dict[str, float], bool]:
    """The same by the slower reader, for text that the fast one refuses (a lone surrogate) and shapes it does not expect."""
    row = jsonl.loads(line)
    response = row.get("response")
    usage = response.get("usage") if isinstance(response, dict) else None
    own = _plain_numbers(row)
    is_masked = own.pop("mask_sample", 0.0) == 1.0
    return _without_flags({**_plain_numbers(usage if isinstance(usage, dict) else {}), **own}), is_masked


def _plain_numbers(values: dict[str, Any]) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for name, value in values.items():
        if name[:1] == "_" or not isinstance(value, int | float):
            continue
        number = _finite(float(value)) if abs(value) < 1e308 else None
        if number is not None:
            numbers[name] = number
    return numbers


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _without_flags(numbers: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in numbers.items() if name not in _FLAGS}

"""The numbers of a projection's rows as columns, filled while the rows pass by.

Memory: 8 bytes a number and 8 a row; the rows themselves are not kept. Masked rows are counted and never enter a column.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from collector import jsonl
from merge.row_blocks import RowBlock

#: Says whether a row is a measurement; it measures nothing.
_FLAGS: Final = frozenset({"mask_sample", "execute_only"})
_NUMBERS: Final = frozenset({int, float, bool})
_LARGEST: Final = sys.float_info.max


class _Skipped(msgspec.Struct, frozen=True, gc=False):
    """An object whose members nobody asks for; the decoder passes over them."""


#: Lists are cut into raw members, objects are passed over: a row costs a third of what decoding it costs.
_Member: TypeAlias = int | float | bool | str | list[msgspec.Raw] | None


class _Object(msgspec.Struct, frozen=True, gc=False):
    """Any object of a row; only that of the response may hold a usage."""

    usage: dict[str, _Member | _Skipped] | _Member = None


_decoder: msgspec.json.Decoder[dict[str, _Member | _Object]] = msgspec.json.Decoder(dict[str, _Member | _Object])


class RowTable:
    """Columns by field name; absent is NaN, which no JSON row can hold. ``keys`` names the row at each position."""

    def __init__(self) -> None:
        self.keys: array[int] = array("q")
        self.masked: array[int] = array("q")
        self._columns: dict[str, array[float]] = {}

    def see(self, block: RowBlock) -> None:
        """Take the numbers of every row in ``block``."""
        try:
            found = [_read(row) for row in _decoder.decode_lines(block.data)]
        except (msgspec.DecodeError, OverflowError):
            found = list(_one_by_one(block))
        for key, (numbers, is_masked) in zip(block.keys, found, strict=True):
            if is_masked:
                self.masked.append(key)
            else:
                self._add(key, numbers)

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

    def _add(self, key: int, numbers: dict[str, float]) -> None:
        count = len(self.keys)
        for name, value in numbers.items():
            column = self._columns.get(name)
            if column is None:
                column = self._columns[name] = array("d")
            if len(column) < count:
                self._pad(column)
            column.append(value)
        self.keys.append(key)

    def _pad(self, column: array[float]) -> None:
        column.extend([math.nan] * (len(self.keys) - len(column)))


def row_numbers(line: bytes) -> tuple[dict[str, float], bool]:
    """The numbers of one row, those of ``response.usage`` among them, and whether the row is masked.

    Top-level numbers and booleans count, keys that begin with ``_`` do not; a row's own field wins over one of the usage.
    """
    try:
        return _read(_decoder.decode(line))
    except (msgspec.DecodeError, OverflowError):
        return _row_numbers_exactly(line)


def _one_by_one(block: RowBlock) -> Iterator[tuple[dict[str, float], bool]]:
    at = 0
    for length in block.lengths:
        yield row_numbers(block.data[at : at + length])
        at += length


def _read(row: dict[str, _Member | _Object]) -> tuple[dict[str, float], bool]:
    response = row.get("response")
    usage = response.usage if isinstance(response, _Object) else None
    numbers = _numbers(usage) if isinstance(usage, dict) else {}
    numbers.update(_numbers(row))
    for name in _FLAGS:
        numbers.pop(name, None)
    return numbers, row.get("mask_sample") is True


def _numbers(values: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if value.__class__ in _NUMBERS and name[:1] != "_"}


def _row_numbers_exactly(line: bytes) -> tuple[dict[str, float], bool]:
    """The same by the slower reader, for text that the fast one refuses (a lone surrogate) and shapes it does not expect."""
    row = jsonl.loads(line)
    response = row.get("response")
    usage = response.get("usage") if isinstance(response, dict) else None
    numbers = {**_plain_numbers(usage if isinstance(usage, dict) else {}), **_plain_numbers(row)}
    return {name: value for name, value in numbers.items() if name not in _FLAGS}, row.get("mask_sample") is True


def _plain_numbers(values: dict[str, Any]) -> dict[str, float]:
    found = ((name, value) for name, value in values.items() if name[:1] != "_" and isinstance(value, int | float))
    # A number beyond the range of a float is none that a mean could be made of.
    return {name: float(value) for name, value in found if abs(value) < _LARGEST}

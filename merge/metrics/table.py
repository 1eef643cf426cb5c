"""The numbers of a projection's rows as columns, added block by block; the rows themselves are not kept.

Memory: 8 bytes a number, 8 a row, and 8 an answer. Masked rows are counted and never enter a column.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

from merge.rows.numbers import NO_ROW, NO_SUBSET, RowNumbers, pad


class RowTable:
    """Columns by field name; absent is NaN, which no JSON row can hold. ``keys`` names the row at each position."""

    def __init__(self) -> None:
        self.keys: array[int] = array("q")
        self.masked: array[int] = array("q")
        #: One number for each of ``keys``: equal for equal answers, or a mark.
        self.answers: array[int] = array("q")
        self.has_answers = False
        #: One number for each of ``keys``, and the name of each; empty unless subsets were asked for.
        self.subsets: array[int] = array("q")
        self.subset_names: dict[int, str] = {}
        self._columns: dict[str, array[float]] = {}

    def add(self, numbers: RowNumbers) -> None:
        """Take the rows of one more block, whose keys are greater than those before."""
        for name, values in numbers.columns.items():
            column = self._columns.setdefault(name, array("d"))
            pad(column, len(self.keys))
            column.extend(values)
        self.keys.extend(numbers.keys)
        self.masked.extend(numbers.masked)
        self.answers.extend(numbers.answers)
        self.has_answers = self.has_answers or numbers.has_answers
        self.subsets.extend(numbers.subsets)
        self.subset_names.update(numbers.subset_names)

    @property
    def fields(self) -> list[str]:
        """The names of all columns that are metrics, sorted."""
        return sorted(name for name in self._columns if not name.startswith("_"))

    def has(self, prefix: str) -> bool:
        """Whether there is a column whose name begins with ``prefix``."""
        return any(name.startswith(prefix) for name in self._columns)

    def column(self, name: str) -> array[float]:
        """One value for each of ``keys``, NaN where the row has none."""
        column = self._columns.get(name)
        if column is None:
            return array("d", [math.nan]) * len(self.keys)
        pad(column, len(self.keys))
        return column

    def copied(self) -> RowTable:
        """A table of the same rows that shares nothing with this one."""
        made = RowTable()
        made.keys, made.masked, made.answers, made.subsets = self.keys[:], self.masked[:], self.answers[:], self.subsets[:]
        made.has_answers, made.subset_names = self.has_answers, dict(self.subset_names)
        made._columns = {name: column[:] for name, column in self._columns.items()}
        return made

    def with_zeros(self, field: str, keys: Sequence[int]) -> RowTable:
        """A table with a row more for each of ``keys``, none of which it holds: ``field`` is 0 there, all others are absent."""
        made = RowTable()
        count = len(self.keys)
        every = [*self.keys, *keys]
        order = sorted(range(len(every)), key=every.__getitem__)
        made.keys = array("q", [every[i] for i in order])
        made.masked = self.masked
        made.has_answers = self.has_answers
        made.answers = array("q", [self.answers[i] if i < count else NO_ROW for i in order])
        made.subsets = array("q", [self.subsets[i] if i < count and self.subsets else NO_SUBSET for i in order])
        made.subset_names = self.subset_names
        for name in {*self._columns, field}:
            column, absent = self.column(name), 0.0 if name == field else math.nan
            made._columns[name] = array("d", [column[i] if i < count else absent for i in order])
        return made

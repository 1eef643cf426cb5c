"""Rows of NeMo Gym's files as columns: 66 bytes a row, whatever it weighs."""

from __future__ import annotations

import math
import zlib
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, Self

import numpy as np

from merge.legacy.lines import Rows
from merge.legacy.rows import InventoryRow, ResultRow
from merge.metrics.array_types import Flags, Floats, Integers

#: Where a row names nobody.
NO_NAME: Final = -1


class Names:
    """Names by number: a million rows share some few."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._numbers: dict[str | None, int] = {None: NO_NAME}

    def number(self, name: str | None) -> int:
        """The number of ``name``, NO_NAME without one."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.all)
            self.all.append(str(name))
        return number

    def numbers(self, names: Sequence[str | None]) -> list[int]:
        """The number of each of ``names``."""
        try:
            return list(map(self._numbers.__getitem__, names))
        except KeyError:
            return list(map(self.number, names))


class Results(NamedTuple):
    """Result rows; agents and servers are names by number, files those of the inputs."""

    files: Integers
    agents: Integers
    servers: Integers
    keys: Integers
    offsets: Integers
    #: Bytes of each line, its newline included even where the file's last line has none.
    lengths: Integers
    checksums: Integers
    #: NaN where a row has none.
    rewards: Floats
    masked: Flags
    truncated: Flags

    def take(self, chosen: Integers | slice) -> Self:
        """Those rows."""
        return self._make(column[chosen] for column in self)


class Questions(NamedTuple):
    """Inventory rows, and where each stands; what they ask is read when it is needed."""

    files: Integers
    agents: Integers
    keys: Integers
    offsets: Integers
    lengths: Integers

    def take(self, chosen: Integers | slice) -> Self:
        """Those rows."""
        return self._make(column[chosen] for column in self)


class _Growing:
    """Columns while they are read, by the type codes of their arrays."""

    def __init__(self, codes: str) -> None:
        self._columns: list[array[Any]] = [array(code) for code in codes]

    def _extend(self, *columns: Iterable[Any]) -> None:
        for column, values in zip(self._columns, columns, strict=True):
            column.extend(values)

    def _arrays(self) -> list[Any]:
        return list(map(np.asarray, self._columns))


class ResultColumns(_Growing):
    """Results while they are read."""

    def __init__(self) -> None:
        super().__init__("qqqqqqqdbb")

    def add(self, file: int, found: Rows[ResultRow], names: Names) -> None:
        """Take rows of the input with the number ``file``."""
        rows = found.rows
        self._extend(
            [file] * len(rows),
            names.numbers([row.agent for row in rows]),
            names.numbers([row.server for row in rows]),
            [row.key for row in rows],
            found.offsets,
            map(len, found.lines),
            map(zlib.crc32, found.lines),
            [math.nan if row.reward is None else row.reward for row in rows],
            [row.mask_sample is True for row in rows],
            [row.is_truncated for row in rows],
        )

    def made(self) -> Results:
        """All of them."""
        *columns, masked, truncated = self._arrays()
        return Results._make([*columns, masked.astype(np.bool_), truncated.astype(np.bool_)])


class QuestionColumns(_Growing):
    """Inventory rows while they are read."""

    def __init__(self) -> None:
        super().__init__("qqqqq")

    def add(self, file: int, found: Rows[InventoryRow], names: Names) -> None:
        """Take rows of the input with the number ``file``."""
        rows = found.rows
        self._extend(
            [file] * len(rows),
            names.numbers([row.agent for row in rows]),
            [row.key for row in rows],
            found.offsets,
            map(len, found.lines),
        )

    def made(self) -> Questions:
        """All of them."""
        return Questions._make(self._arrays())

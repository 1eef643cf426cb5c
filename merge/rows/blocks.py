"""Selected rows, read in projection order and checked against the checksum that was recorded when each was written."""

from __future__ import annotations

import os
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from collector.durable import FileId
from collector.errors import CorruptArtifactError, RefusedError
from collector.formats.rollout_key import counted_id
from merge.inputs.shards import ShardView

#: Bytes of one stretch over all inputs together. Rows of requests that ran side by side are recorded out of order: each
#: stretch overlaps with the next by those in flight, so that larger ones read less twice.
_STRETCH: Final = 6 << 20
#: Bytes between wanted rows of one shard that are rather read along than skipped with a call of their own.
_GAP: Final = 2 << 20


class RowBlock(NamedTuple):
    """Whole rows that follow each other in a projection: the key of each, and its bytes, newline included."""

    keys: list[int]
    lines: list[memoryview]


class RowMemory:
    """Where rows are read to. One that is used again for every stretch saves the kernel's making a gigabyte of new pages.

    Rows in it hold until ``begin``.
    """

    def __init__(self) -> None:
        self._data = bytearray()
        self._used = self._wanted = 0

    def begin(self) -> None:
        """Forget what was read, and have room for as much."""
        if self._wanted > len(self._data):
            self._data = bytearray(self._wanted)
        self._used = self._wanted = 0

    def take(self, size: int) -> memoryview:
        """The next ``size`` bytes, with anything in them."""
        self._wanted += size
        if self._used + size > len(self._data):
            return memoryview(bytearray(size))
        self._used += size
        return memoryview(self._data)[self._used - size : self._used]


class Stretch(NamedTuple):
    """A part of a projection: the selected rows with a key from ``low`` on and below ``high``, which are ``size`` bytes."""

    low: int
    high: int
    size: int


def read_rows(shards: Sequence[ShardView]) -> Iterator[RowBlock]:
    """Every selected row of ``shards`` in (task, repeat) order, in blocks; memory does not grow with the rows.

    Raises CorruptArtifactError for a row whose bytes are not the recorded ones, RefusedError for a file that was replaced.
    """
    for stretch in plan_stretches(shards):
        yield read_stretch(shards, stretch)


def plan_stretches(shards: Sequence[ShardView]) -> list[Stretch]:
    """The projection of ``shards`` cut into stretches of about ``_STRETCH`` bytes, in order, however its rows lie in them."""
    keys = np.concatenate([np.asarray(shard.rows.keys) for shard in shards])
    lengths = np.concatenate([np.asarray(shard.rows.lengths) for shard in shards])
    order = np.argsort(keys, kind="stable")
    keys, ends = keys[order], np.cumsum(lengths[order])
    if not len(keys):
        return []
    marks = np.arange(_STRETCH, int(ends[-1]), _STRETCH)
    cuts = np.unique([0, *np.searchsorted(ends, marks, side="right"), len(keys)])
    lows = [int(keys[cut]) for cut in cuts[:-1]]
    sizes = np.diff([int(ends[cut - 1]) if cut else 0 for cut in cuts])
    return [Stretch(low, high, int(size)) for low, high, size in zip(lows, [*lows[1:], int(keys[-1]) + 1], sizes, strict=True)]


def read_stretch(shards: Sequence[ShardView], stretch: Stretch, memory: RowMemory | None = None) -> RowBlock:
    """The rows of ``stretch``, in ``memory`` if one is given, which forgets what it held.

    Opens its files for the time of the call: a thousand shards need no thousand descriptors.
    """
    memory = memory or RowMemory()
    memory.begin()
    keys: list[int] = []
    lines: list[memoryview] = []
    for shard in shards:
        begin = bisect_left(shard.rows.keys, stretch.low)
        end = bisect_left(shard.rows.keys, stretch.high, begin)
        if begin < end:
            keys += shard.rows.keys[begin:end]
            lines += _read_shard_rows(shard, begin, end, memory)
    # The rows of each shard rise already; sorting merges them.
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return RowBlock([keys[i] for i in order], [lines[i] for i in order])


def _read_shard_rows(shard: ShardView, begin: int, end: int, memory: RowMemory) -> list[memoryview]:
    path = shard.artifacts.rollouts
    with path.open("rb", buffering=0) as file:
        if FileId.of(os.fstat(file.fileno())) != shard.marks[path].file_id:
            raise RefusedError("the file was replaced while it was merged.", "Merge again.", path)
        found: list[memoryview] = []
        while begin < end:
            last, low, high = _span(shard, begin, end)
            data = memory.take(high - low)
            _read(file.fileno(), low, data)
            found += _checked(shard, data, low, begin, last)
            begin = last
        return found


def _span(shard: ShardView, begin: int, end: int) -> tuple[int, int, int]:
    """The rows from ``begin`` on that lie close together in the file, to be read with one call, and their range.

    A row that came by a late retry is far from its neighbours by key, and read alone.
    """
    offsets, lengths = shard.rows.offsets, shard.rows.lengths
    wanted = sum(lengths[begin:end])
    low = min(offsets[begin:end])
    high = max(map(int.__add__, offsets[begin:end], lengths[begin:end]))
    if high - low <= 2 * wanted + _GAP or end - begin == 1:
        return end, low, high
    return _span(shard, begin, (begin + end) // 2)


def _checked(shard: ShardView, data: memoryview, low: int, begin: int, end: int) -> list[memoryview]:
    rows = shard.rows
    starts = [offset - low for offset in rows.offsets[begin:end]]
    lines = [data[at : at + length] for at, length in zip(starts, rows.lengths[begin:end], strict=True)]
    sums = list(rows.checksums[begin:end])
    found = list(map(zlib.crc32, lines))
    if found != sums:
        index = begin + next(i for i, checksum in enumerate(found) if checksum != sums[i])
        raise _corrupt(shard, index, "is not the one recorded.")
    return lines


def unreadable(shards: Sequence[ShardView], key: int, why: str) -> CorruptArtifactError:
    """The error for the row with ``key``, which one of ``shards`` has and no reader takes."""
    for shard in shards:
        index = bisect_left(shard.rows.keys, key)
        if index < len(shard.rows) and shard.rows.keys[index] == key:
            return _corrupt(shard, index, f"cannot be read ({why}).")
    raise AssertionError("a row that was read is of one of the shards")


def _corrupt(shard: ShardView, index: int, what: str) -> CorruptArtifactError:
    key = shard.rows.keys[index]
    where = f"the row of rollout {counted_id(key)} at byte {shard.rows.offsets[index]}"
    return CorruptArtifactError(shard.artifacts.rollouts, 0, f"{where} {what}")


def _read(descriptor: int, offset: int, data: memoryview) -> None:
    """Fill ``data`` from ``offset`` on. What the file lacks is a newline, and zeros behind it."""
    read = 0
    while read < len(data):
        found = os.preadv(descriptor, [data[read:]], offset + read)
        if not found:
            # The newline of the last row may be all that a crash cut off; the checksum tells.
            data[read:] = b"\n".ljust(len(data) - read, b"\0")
            return
        read += found

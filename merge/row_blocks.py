"""Selected rows, read in projection order and checked against the checksum that was recorded when each was written."""

from __future__ import annotations

import os
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Final, NamedTuple

from collector.durable import FileId
from collector.errors import CorruptArtifactError, RefusedError
from merge.select import repeat_of, task_of
from merge.shards import ShardView

#: Bytes handed on at once; large enough that calls cost nothing, small enough that memory does not count.
_BLOCK: Final = 2 << 20
#: Bytes read ahead over all inputs together. Rows of requests that ran side by side are recorded out of order: each stretch
#: overlaps with the next by those in flight, so that larger ones read less twice.
_STRETCH: Final = 8 << 20

_KEY: Final = itemgetter(0)


class RowBlock(NamedTuple):
    """Whole rows, one after the other, with the key and the length in bytes of each."""

    data: bytes
    keys: Sequence[int]
    lengths: Sequence[int]


def read_rows(shards: Sequence[ShardView]) -> Iterator[RowBlock]:
    """Every selected row of ``shards`` in (task, repeat) order, in blocks of about 2 MiB; memory does not grow with the rows.

    Raises CorruptArtifactError for a row whose bytes are not the recorded ones, RefusedError for a file that was replaced.
    """
    readers = [_Reader(shard) for shard in shards if len(shard.rows)]
    for end in [*_ends(shards), None]:
        pieces = [piece for reader in readers for piece in reader.before(end)]
        # Each reader's rows rise already; sorting merges them.
        pieces.sort(key=_KEY)
        yield from _blocks(pieces)


def _blocks(pieces: list[tuple[int, memoryview]]) -> Iterator[RowBlock]:
    begin = size = 0
    for index, (_, data) in enumerate(pieces, start=1):
        size += len(data)
        if size >= _BLOCK or index == len(pieces):
            chosen = pieces[begin:index]
            rows = [data for _, data in chosen]
            yield RowBlock(b"".join(rows), [key for key, _ in chosen], list(map(len, rows)))
            begin, size = index, 0


def _ends(shards: Sequence[ShardView]) -> list[int]:
    """Keys that part the projection into stretches of about ``_STRETCH`` bytes, however its rows lie in the shards."""
    step = max(1, _STRETCH // max(16, 2 * len(shards)))
    marks = sorted(key for shard in shards for key in _every(shard, step))
    return marks[_STRETCH // step :: _STRETCH // step]


def _every(shard: ShardView, step: int) -> Iterator[int]:
    """A key of ``shard`` for every ``step`` bytes of its rows."""
    sizes = array("q", accumulate(shard.rows.lengths))
    at = 0
    while at < len(sizes):
        yield shard.rows.keys[at]
        at = max(at + 1, bisect_left(sizes, sizes[at] + step))


class _Reader:
    """The selected rows of one shard. Opens its file for each stretch: a thousand shards need no thousand descriptors."""

    def __init__(self, shard: ShardView) -> None:
        self._path = shard.artifacts.rollouts
        self._mark = shard.marks[self._path]
        self._rows = shard.rows
        self._begin = 0

    def before(self, key: int | None) -> list[tuple[int, memoryview]]:
        """Key and bytes of each row that was not read yet and comes before ``key``, rising; None: all that are left."""
        begin = self._begin
        end = self._begin = len(self._rows) if key is None else bisect_left(self._rows.keys, key, begin)
        if end == begin:
            return []
        with self._path.open("rb", buffering=0) as file:
            if FileId.of(os.fstat(file.fileno())) != self._mark.file_id:
                raise RefusedError("the file was replaced while it was merged.", "Merge again.", self._path)
            return self._pieces(file.fileno(), begin, end)

    def _pieces(self, descriptor: int, begin: int, end: int) -> list[tuple[int, memoryview]]:
        found: list[tuple[int, memoryview]] = []
        while begin < end:
            last, low, high = self._span(begin, end)
            found += self._checked(memoryview(_read(descriptor, low, high - low)), low, begin, last)
            begin = last
        return found

    def _span(self, begin: int, end: int) -> tuple[int, int, int]:
        """The rows from ``begin`` on that lie close together in the file, to be read with one call, and their range.

        A row that came by a late retry is far from its neighbours by key, and read alone.
        """
        offsets, lengths = self._rows.offsets, self._rows.lengths
        wanted = sum(lengths[begin:end])
        low = min(offsets[begin:end])
        high = max(map(int.__add__, offsets[begin:end], lengths[begin:end]))
        if high - low <= 2 * wanted + _BLOCK or end - begin == 1:
            return end, low, high
        middle = (begin + end) // 2
        return self._span(begin, middle)

    def _checked(self, data: memoryview, low: int, begin: int, end: int) -> list[tuple[int, memoryview]]:
        rows = self._rows
        starts = [offset - low for offset in rows.offsets[begin:end]]
        pieces = [data[at : at + length] for at, length in zip(starts, rows.lengths[begin:end], strict=True)]
        sums = rows.checksums[begin:end]
        if list(map(zlib.crc32, pieces)) != list(sums):
            raise self._corrupt(next(begin + i for i, piece in enumerate(pieces) if zlib.crc32(piece) != sums[i]))
        return list(zip(rows.keys[begin:end], pieces, strict=True))

    def _corrupt(self, index: int) -> CorruptArtifactError:
        key = self._rows.keys[index]
        return CorruptArtifactError(
            self._path,
            0,
            f"the row of rollout {task_of(key)}-{repeat_of(key)} at byte {self._rows.offsets[index]} is not the one recorded.",
        )


def _read(descriptor: int, offset: int, size: int) -> bytes:
    data = os.pread(descriptor, size, offset)
    while len(data) < size:
        more = os.pread(descriptor, size - len(data), offset + len(data))
        if not more:
            # The newline of the last row may be all that a crash cut off; the checksum tells.
            return data + b"\n"
        data += more
    return data

"""Selected rows, read in projection order and checked against the checksum that was recorded when each was written."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from collector.durable import FileId
from collector.errors import CorruptArtifactError, RefusedError
from merge.select import order_runs, repeat_of, task_of
from merge.shards import ShardView

#: Bytes handed on at once; large enough that calls cost nothing, small enough that memory does not count.
_BLOCK: Final = 4 << 20
#: Bytes read ahead over all inputs together, and of one input at least.
_READ_AHEAD: Final = 16 << 20
_LEAST: Final = 64 << 10


class RowBlock(NamedTuple):
    """Whole rows, one after the other, with the key and the length in bytes of each."""

    data: bytes
    keys: Sequence[int]
    lengths: Sequence[int]


def read_rows(shards: Sequence[ShardView]) -> Iterator[RowBlock]:
    """Every selected row of ``shards`` in (task, repeat) order, in blocks of about 4 MiB; memory does not grow with the rows.

    Raises CorruptArtifactError for a row whose bytes are not the recorded ones, RefusedError for a file that was replaced.
    """
    window = min(_BLOCK, max(_LEAST, _READ_AHEAD // max(1, len(shards))))
    readers = [_Reader(shard, window).pieces() for shard in shards]
    keys: list[int] = []
    pieces: list[memoryview] = []
    size = 0
    for run in order_runs([shard.rows.keys for shard in shards]):
        for key, piece in islice(readers[run.shard], run.end - run.begin):
            keys.append(key)
            pieces.append(piece)
            size += len(piece)
            if size >= _BLOCK:
                yield RowBlock(b"".join(pieces), keys, list(map(len, pieces)))
                keys, pieces, size = [], [], 0
    if pieces:
        yield RowBlock(b"".join(pieces), keys, list(map(len, pieces)))


class _Reader:
    """The selected rows of one shard. Opens its file for each window: a thousand shards need no thousand descriptors."""

    def __init__(self, shard: ShardView, window: int) -> None:
        self._path = shard.artifacts.rollouts
        self._mark = shard.marks[self._path]
        self._rows = shard.rows
        self._window = window

    def pieces(self) -> Iterator[tuple[int, memoryview]]:
        """Key and bytes of each row by rising key; rows that lie close together in the file are read with one call."""
        begin = 0
        while begin < len(self._rows):
            end, low, high = self._span(begin)
            yield from self._checked(self._read(low, high - low), low, begin, end)
            begin = end

    def _span(self, begin: int) -> tuple[int, int, int]:
        """The rows from ``begin`` on that lie in one stretch of at most a window, and that stretch.

        Requests that ran side by side were recorded out of order, but near each other; a row that came by a late retry is
        far away, and read alone.
        """
        offsets, lengths = self._rows.offsets, self._rows.lengths
        low = offsets[begin]
        high = low + lengths[begin]
        end = begin + 1
        while end < len(lengths):
            first, last = min(low, offsets[end]), max(high, offsets[end] + lengths[end])
            if last - first > self._window:
                break
            low, high, end = first, last, end + 1
        return end, low, high

    def _checked(self, data: bytes, low: int, begin: int, end: int) -> Iterator[tuple[int, memoryview]]:
        rows = self._rows
        view = memoryview(data)
        for index in range(begin, end):
            offset = rows.offsets[index] - low
            piece = view[offset : offset + rows.lengths[index]]
            if zlib.crc32(piece) != rows.checksums[index]:
                raise self._corrupt(index)
            yield rows.keys[index], piece

    def _read(self, offset: int, size: int) -> bytes:
        with self._path.open("rb", buffering=0) as file:
            if FileId.of(os.fstat(file.fileno())) != self._mark.file_id:
                raise RefusedError("the file was replaced while it was merged.", "Merge again.", self._path)
            data = os.pread(file.fileno(), size, offset)
            while len(data) < size:
                more = os.pread(file.fileno(), size - len(data), offset + len(data))
                if not more:
                    # The newline of the last row may be all that a crash cut off; the checksum tells.
                    return data + b"\n"
                data += more
            return data

    def _corrupt(self, index: int) -> CorruptArtifactError:
        key = self._rows.keys[index]
        return CorruptArtifactError(
            self._path,
            0,
            f"the row of rollout {task_of(key)}-{repeat_of(key)} at byte {self._rows.offsets[index]} is not the one recorded.",
        )

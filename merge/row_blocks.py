"""Selected rows, read in projection order and checked against the checksum that was recorded when each was written."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from collector.errors import CorruptArtifactError
from merge.select import RowRun, SelectedRows, order_runs, repeat_of, task_of
from merge.shards import ShardView

#: Bytes read or handed on at once; large enough that calls cost nothing, small enough that memory does not count.
_BLOCK: Final = 4 << 20


class RowBlock(NamedTuple):
    """Whole rows, one after the other, with the key and the length in bytes of each."""

    data: bytes
    keys: Sequence[int]
    lengths: Sequence[int]


def read_rows(shards: Sequence[ShardView]) -> Iterator[RowBlock]:
    """Every selected row of ``shards`` in (task, repeat) order, in blocks of about 4 MiB; memory does not grow with the rows.

    Raises CorruptArtifactError for a row whose bytes are not the recorded ones.
    """
    with ExitStack() as stack:
        readers = [_Reader(shard.artifacts.rollouts, shard.rows, stack) for shard in shards]
        waiting: list[RowBlock] = []
        size = 0
        for run in order_runs([shard.rows.keys for shard in shards]):
            for block in readers[run.shard].read(run):
                waiting.append(block)
                size += len(block.data)
                if size >= _BLOCK:
                    yield _joined(waiting)
                    waiting, size = [], 0
        if waiting:
            yield _joined(waiting)


class _Reader:
    """One open main file and the places of its selected rows."""

    def __init__(self, path: Path, rows: SelectedRows, stack: ExitStack) -> None:
        self._path = path
        self._rows = rows
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, self._descriptor)

    def read(self, run: RowRun) -> Iterator[RowBlock]:
        """The rows of ``run``; those that lie close together in the file are read with one call."""
        begin = run.begin
        while begin < run.end:
            end, low, high = self._span(begin, run.end)
            data = self._read(low, high - low)
            yield self._checked(data, low, begin, end)
            begin = end

    def _span(self, begin: int, limit: int) -> tuple[int, int, int]:
        """The rows from ``begin`` on that lie in one stretch of at most a block, and that stretch.

        Requests that ran side by side were recorded out of order, but near each other; a row that came by a late retry is
        far away, and read alone.
        """
        offsets, lengths = self._rows.offsets, self._rows.lengths
        low = offsets[begin]
        high = low + lengths[begin]
        end = begin + 1
        while end < limit:
            first, last = min(low, offsets[end]), max(high, offsets[end] + lengths[end])
            if last - first > _BLOCK:
                break
            low, high, end = first, last, end + 1
        return end, low, high

    def _checked(self, data: bytes, low: int, begin: int, end: int) -> RowBlock:
        offsets, checksums = self._rows.offsets[begin:end], self._rows.checksums[begin:end]
        lengths = self._rows.lengths[begin:end]
        view = memoryview(data)
        pieces: list[memoryview] = []
        for index, (offset, length, checksum) in enumerate(zip(offsets, lengths, checksums, strict=True), start=begin):
            piece = view[offset - low : offset - low + length]
            if zlib.crc32(piece) != checksum:
                raise self._corrupt(index)
            pieces.append(piece)
        return RowBlock(b"".join(pieces), self._rows.keys[begin:end], lengths)

    def _read(self, offset: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, offset)
        while len(data) < size:
            more = os.pread(self._descriptor, size - len(data), offset + len(data))
            if not more:
                # The newline of the last row may be what a crash cut off; the checksum decides whether it was only that.
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


def _joined(blocks: list[RowBlock]) -> RowBlock:
    if len(blocks) == 1:
        return blocks[0]
    return RowBlock(
        b"".join(block.data for block in blocks),
        [key for block in blocks for key in block.keys],
        [length for block in blocks for length in block.lengths],
    )

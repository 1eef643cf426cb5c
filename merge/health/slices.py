"""Where rows stand, as slices that survive the trip to another process and cannot be mistaken for another run's rows.

A slice carries the file's (device, inode) and a checksum of its bytes as they were found here. Whoever reads it later compares
both: growth by append is no change, a file that took the path meanwhile is one, and so are bytes written over in place.
"""

from __future__ import annotations

import os
import re
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from collector.durable import FileId
from merge.line_blocks import Block, read_blocks

if TYPE_CHECKING:
    from merge.inputs.shards import ShardView

#: Bytes of a slice: some tens for each worker of a large file, and memory that does not count.
_SLICE: Final = 4 << 20
_NEWLINE: Final = ord("\n")
#: Jumps from one to the next, where `bytes.count` compares each byte: a third of the time for rows of some KB.
_find_newlines: Final = re.compile(rb"\n").findall


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Whole lines of a file without a journal, one after the other."""

    path: str
    file_id: FileId
    offset: int
    length: int
    checksum: int
    #: Number of the first line, from 1, and how many lines follow it, itself included.
    first_line: int
    lines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Rows that a journal selects: (offset, length, checksum) of each, in file order."""

    path: str
    file_id: FileId
    offsets: array[int]
    lengths: array[int]
    checksums: array[int]


Slice: TypeAlias = Stretch | Selection


def stretches_of(path: Path) -> Iterator[Stretch]:
    """All lines that ``path`` has now. Reads the file once; raises OSError when that cannot be done."""
    with path.open("rb", buffering=0) as file:
        file_id = FileId.of(os.fstat(file.fileno()))
        part = Stretch(path=str(path), file_id=file_id, offset=0, length=0, checksum=0, first_line=1, lines=0)
        # The last line may be still being written: what is there of it counts.
        for block in read_blocks(file.fileno(), 0):
            part = _with_block(part, block)
            if part.length >= _SLICE:
                yield part
                part = _behind(part)
        if part.length:
            yield part


def _with_block(part: Stretch, block: Block) -> Stretch:
    data = block.view()
    lines = len(_find_newlines(data)) + (data[-1] != _NEWLINE)
    return replace(part, length=part.length + block.size, checksum=zlib.crc32(data, part.checksum), lines=part.lines + lines)


def _behind(part: Stretch) -> Stretch:
    """An empty one that begins where ``part`` ends."""
    end, line = part.offset + part.length, part.first_line + part.lines
    return replace(part, offset=end, length=0, checksum=0, first_line=line, lines=0)


def selections_of(shard: ShardView) -> Iterator[Selection]:
    """The rows of the selected attempts of ``shard``, whose journal says where they stand."""
    path, rows = shard.artifacts.rollouts, shard.rows
    file_id = shard.marks[path].file_id
    order = sorted(range(len(rows)), key=rows.offsets.__getitem__)
    begin = size = 0
    for end, i in enumerate(order, start=1):
        size += rows.lengths[i]
        if size >= _SLICE or end == len(order):
            part = order[begin:end]
            yield Selection(
                path=str(path),
                file_id=file_id,
                offsets=array("q", (rows.offsets[k] for k in part)),
                lengths=array("q", (rows.lengths[k] for k in part)),
                checksums=array("q", (rows.checksums[k] for k in part)),
            )
            begin, size = end, 0

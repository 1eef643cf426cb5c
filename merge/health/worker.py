"""One slice to the digests of its rows; what a process of the pool runs. Reports only rows of the file that was indexed."""

from __future__ import annotations

import os
import zlib
from typing import Final, NamedTuple

from collector.durable import FileId
from merge.health.checks import Check
from merge.health.digest import Digester
from merge.health.slices import Selection, Slice, Stretch
from merge.health.table import Table
from merge.health.tally import Tally
from merge.line_blocks import read_blocks, read_extents

_REPLACED: Final = "the file was replaced since it was indexed"
_REWRITTEN: Final = "the bytes changed since they were indexed"
_FOREIGN: Final = "the row is not the one its journal records"
_SPACE: Final = ord(" ")


class SliceDigest(NamedTuple):
    """The rows of one slice, in their order, and the counts over them."""

    table: Table
    tally: Tally


def digest_slice(part: Slice, ignored: frozenset[Check]) -> SliceDigest:
    """The digests of the rows in ``part``."""
    digester = _digest(part, ignored)
    return SliceDigest(digester.table, digester.tally)


def _digest(part: Slice, ignored: frozenset[Check]) -> Digester:
    try:
        descriptor = os.open(part.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        return _lost(part, f"the file cannot be opened ({error.strerror})", ignored)
    try:
        # The descriptor, not the path: a path can be given to another file between two looks at it.
        if FileId.of(os.fstat(descriptor)) != part.file_id:
            return _lost(part, _REPLACED, ignored)
        if isinstance(part, Stretch):
            return _of_stretch(part, descriptor, ignored) or _lost(part, _REWRITTEN, ignored)
        return _of_selection(part, descriptor, ignored)
    finally:
        os.close(descriptor)


def _of_stretch(part: Stretch, descriptor: int, ignored: frozenset[Check]) -> Digester | None:
    """None when the bytes are not those that were indexed, which is known behind the last of them."""
    digester = Digester(part.path, "line", ignored)
    number, length, checksum = part.first_line, 0, 0
    for block in read_blocks(descriptor, part.offset, part.offset + part.length):
        length, checksum = length + block.size, zlib.crc32(block.view(), checksum)
        for line in block.lines():
            if line and (line[0] > _SPACE or not bytes(line).isspace()):
                digester.add(line, number)
            number += 1
    return digester if (length, checksum) == (part.length, part.checksum) else None


def _of_selection(part: Selection, descriptor: int, ignored: frozenset[Check]) -> Digester:
    digester = Digester(part.path, "byte", ignored)
    found = read_extents(descriptor, part.offsets, part.lengths)
    for data, offset, length, checksum in zip(found, part.offsets, part.lengths, part.checksums, strict=True):
        # A crash cut off the newline of the last row, which is whole otherwise.
        line = bytes(data) + b"\n" if len(data) == length - 1 else data
        if zlib.crc32(line) == checksum:
            digester.add(line, offset)
        else:
            digester.add_unreadable(offset, _FOREIGN)
    return digester


def _lost(part: Slice, reason: str, ignored: frozenset[Check]) -> Digester:
    """One finding for each row that was there; none of what is there now is looked at."""
    is_stretch = isinstance(part, Stretch)
    digester = Digester(part.path, "line" if is_stretch else "byte", ignored)
    for number in range(part.first_line, part.first_line + part.lines) if is_stretch else part.offsets:
        digester.add_unreadable(number, reason)
    return digester

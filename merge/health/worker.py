"""One slice to the digests of its rows; what a process of the pool runs. Reports only rows of the file that was indexed."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from typing import Final

import msgspec

from collector.durable import FileId
from merge.health.checks import Check
from merge.health.digest import Digest, Place, digest_row, unreadable
from merge.health.slices import Selection, Slice, Stretch

_REPLACED: Final = "the file was replaced since it was indexed"
_REWRITTEN: Final = "the bytes changed since they were indexed"
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[Digest])


def digest_slice(part: Slice, ignored: frozenset[Check]) -> bytes:
    """The digests of the rows in ``part``, encoded: pickling as many objects takes longer than finding them."""
    return _encoder.encode(list(_digests(part, ignored)))


def decode_digests(data: bytes) -> list[Digest]:
    """What ``digest_slice`` returned."""
    return _decoder.decode(data)


def _digests(part: Slice, ignored: frozenset[Check]) -> Iterator[Digest]:
    try:
        descriptor = os.open(part.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        yield from _lost(part, f"the file cannot be opened ({error.strerror})", ignored)
        return
    try:
        # The descriptor, not the path: a path can be given to another file between two looks at it.
        if FileId.of(os.fstat(descriptor)) != part.file_id:
            yield from _lost(part, _REPLACED, ignored)
        elif isinstance(part, Stretch):
            yield from _of_stretch(part, descriptor, ignored)
        else:
            yield from _of_selection(part, descriptor, ignored)
    finally:
        os.close(descriptor)


def _of_stretch(part: Stretch, descriptor: int, ignored: frozenset[Check]) -> Iterator[Digest]:
    data = _read(descriptor, part.offset, part.length)
    if len(data) != part.length or zlib.crc32(data) != part.checksum:
        yield from _lost(part, _REWRITTEN, ignored)
        return
    for number, line in enumerate(data.split(b"\n"), start=part.first_line):
        if line and not line.isspace():
            yield digest_row(line, Place(part.path, line=number), ignored)


def _of_selection(part: Selection, descriptor: int, ignored: frozenset[Check]) -> Iterator[Digest]:
    for offset, length, checksum in zip(part.offsets, part.lengths, part.checksums, strict=True):
        data = _read(descriptor, offset, length)
        if len(data) == length - 1:
            # A crash cut off the newline of the last row, which is whole otherwise.
            data += b"\n"
        if zlib.crc32(data) == checksum:
            yield digest_row(data, Place(part.path, byte=offset), ignored)
        else:
            yield unreadable(Place(part.path, byte=offset), "the row is not the one its journal records", ignored)


def _lost(part: Slice, reason: str, ignored: frozenset[Check]) -> Iterator[Digest]:
    """One finding for each row that was there; none of what is there now is looked at."""
    if isinstance(part, Stretch):
        places = [Place(part.path, line=part.first_line + i) for i in range(part.lines)]
    else:
        places = [Place(part.path, byte=offset) for offset in part.offsets]
    for place in places:
        yield unreadable(place, reason, ignored)


def _read(descriptor: int, offset: int, size: int) -> bytes:
    data = os.pread(descriptor, size, offset)
    while len(data) < size:
        more = os.pread(descriptor, size - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data

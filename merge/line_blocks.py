"""A file as blocks of whole lines, each small enough to stay in a processor's cache while it is looked at."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

#: Checksum, search for lines and parsing of a block cost a third less than of one that has left the second cache by then.
_BLOCK: Final = 256 << 10
#: A larger buffer, made for a long line, is given back behind it.
_MOST_KEPT: Final = 4 << 20


class Block(NamedTuple):
    """Whole lines: the first ``size`` bytes of ``buffer``. Holds until the next one is asked for."""

    buffer: bytearray
    size: int

    def view(self) -> memoryview:
        """All bytes of it."""
        return memoryview(self.buffer)[: self.size]

    def lines(self) -> Iterator[memoryview]:
        """Each line, without its LF. Nothing is copied."""
        # Not `split`: its copies of long lines cost as much as half of their parsing.
        find, view, begin = self.buffer.find, memoryview(self.buffer), 0
        while begin < self.size:
            end = find(b"\n", begin, self.size)
            if end < 0:
                end = self.size
            yield view[begin:end]
            begin = end + 1


def read_blocks(descriptor: int, offset: int, end: int | None = None) -> Iterator[Block]:
    """The lines from ``offset`` to ``end``, by default to the end of the file. A last line without LF is the last block.

    Stops early where the file does. Raises OSError.
    """
    buffer = bytearray(_BLOCK)
    while wanted := len(buffer) if end is None else min(len(buffer), end - offset):
        found = os.preadv(descriptor, [memoryview(buffer)[:wanted]], offset)
        if not found:
            return
        size = buffer.rfind(b"\n", 0, found) + 1
        if not size:
            following = offset + found
            if following != end and os.pread(descriptor, 1, following):
                # A line that is longer than what was read is read again with more.
                buffer = bytearray(2 * len(buffer))
                continue
            yield Block(buffer, found)
            return
        yield Block(buffer, size)
        offset += size
        if len(buffer) > _MOST_KEPT:
            buffer = bytearray(_BLOCK)


def read_extents(descriptor: int, offsets: Sequence[int], lengths: Sequence[int]) -> Iterator[memoryview]:
    """The bytes at each of ``offsets``, which ascend, as far as the file has them. Each holds until the next one is asked for.

    Extents near each other are read at once. Raises OSError.
    """
    first = 0
    while first < len(offsets):
        begin, end = offsets[first], offsets[first] + lengths[first]
        last = first + 1
        while last < len(offsets) and offsets[last] + lengths[last] - begin <= _BLOCK:
            end = max(end, offsets[last] + lengths[last])
            last += 1
        data = memoryview(_read(descriptor, begin, end - begin))
        for i in range(first, last):
            yield data[offsets[i] - begin : offsets[i] - begin + lengths[i]]
        first = last


def _read(descriptor: int, offset: int, size: int) -> bytes:
    data = os.pread(descriptor, size, offset)
    while len(data) < size:
        more = os.pread(descriptor, size - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data

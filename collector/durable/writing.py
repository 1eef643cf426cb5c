"""Bytes to a descriptor, all of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

#: Bytes gathered per call when a file is written in pieces; large enough that the call itself costs nothing.
BLOCK = 1 << 20


def write_all(descriptor: int, data: bytes) -> None:
    """Write ``data`` where the descriptor stands, in one call when the kernel takes it."""
    if not data:
        return
    written = os.write(descriptor, data)
    view = memoryview(data)
    while written < len(data):
        written += os.write(descriptor, view[written:])


def blocks(lines: Iterable[bytes]) -> Iterator[bytes]:
    """``lines`` joined to pieces of about ``BLOCK`` bytes."""
    block = bytearray()
    for line in lines:
        block += line
        if len(block) >= BLOCK:
            yield bytes(block)
            block.clear()
    if block:
        yield bytes(block)

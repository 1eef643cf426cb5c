"""A row as its file has it, held against what was recorded of it."""

from __future__ import annotations

import zlib
from pathlib import Path

from collector.errors import CorruptArtifactError
from collector.state.codes import Place


def ended(line: bytes) -> bytes:
    """``line`` with its newline, which the last one of a file may lack until the next session ends it."""
    return line if line.endswith(b"\n") else line + b"\n"


def as_recorded(line: bytes, place: Place, path: Path) -> bytes:
    """The row whose bytes at ``place`` of ``path`` are ``line``, newline included.

    Raises CorruptArtifactError when it is not the one that was recorded there.
    """
    row = ended(line)
    if zlib.crc32(row) != place.checksum:
        raise CorruptArtifactError(path, 0, f"the row at byte {place.offset} is not the one that was recorded.")
    return row

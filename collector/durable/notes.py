"""Files for people: neither atomic nor durable."""

from __future__ import annotations

import os
from pathlib import Path

from collector.durable import names


def overwrite_note(path: Path, data: bytes) -> None:
    """Replace the content of ``path`` in place, keeping its inode. Not atomic and not durable: for notes to people."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        # In this order the file is never empty again, by which a lock would not be known as one.
        os.pwrite(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))
    finally:
        os.close(descriptor)


def open_log(path: Path) -> int:
    """A descriptor for the output of a child process, added at the end of ``path``. Not durable: for people."""
    names.make_dir(path.parent)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)

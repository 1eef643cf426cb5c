"""Whole directories that appear in one step."""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from collector.durable import names, writing

#: Files of a staged directory from which on they are synced side by side, and how many at once.
_MANY = 256
_AT_ONCE = 16


@contextmanager
def staged_dir(path: Path) -> Generator[Path]:
    """Give a directory to fill that becomes ``path`` in one rename, and is removed when the block raises.

    Raises FileExistsError when ``path`` exists already: a published directory is never replaced.
    """
    names.make_dir(path.parent)
    if path.exists() or path.is_symlink():
        raise FileExistsError(17, "the destination exists already", str(path))
    temporary = names.temporary_name(path)
    temporary.mkdir(mode=0o755)
    try:
        yield temporary
        entries = list(temporary.rglob("*"))
        _sync_files([entry for entry in entries if entry.is_file()])
        for entry in entries:
            if entry.is_dir():
                names.sync_dir(entry)
        names.sync_dir(temporary)
        os.rename(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    names.sync_dir(path.parent)


def _sync_files(files: Sequence[Path]) -> None:
    """Make the bytes of ``files`` durable. Many at once share commits: 2,000 files take a tenth of the time."""
    if len(files) < _MANY:
        for path in files:
            names.sync_file(path)
        return
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        # A future each for all of them at once would take more memory than whatever filled the directory.
        for start in range(0, len(files), _MANY):
            deque(pool.map(names.sync_file, files[start : start + _MANY]), maxlen=0)


def write_new(path: Path, data: bytes) -> None:
    """Write a file inside a staged directory; durable only when that directory is published."""
    write_new_lines(path, [data])


def write_new_lines(path: Path, lines: Iterable[bytes]) -> None:
    """``write_new`` for a file made of many pieces, written in blocks."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        for block in writing.blocks(lines):
            writing.write_all(descriptor, block)
    finally:
        os.close(descriptor)

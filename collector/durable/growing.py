"""Files that grow at their end, and the repair of an end that a crash left."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from collector.durable import names, writing


class AppendFile:
    """A file that only grows, one writer at a time; the offset of each append is known.

    Everything goes through one descriptor: when the path is given to another file, that one is never touched.
    """

    def __init__(self, path: Path, *, must_exist: bool = False) -> None:
        created = not must_exist and not path.exists()
        self.path = path
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (0 if must_exist else os.O_CREAT)
        self._descriptor = os.open(path, flags, 0o666)
        if created:
            names.sync_dir(path.parent)
        self.file_id = names.FileId.of(os.fstat(self._descriptor))

    def append(self, data: bytes) -> int:
        """Add ``data`` at the end and return the offset where it begins. Not durable before ``sync``."""
        writing.write_all(self._descriptor, data)
        # The kernel leaves the position of an O_APPEND descriptor behind what was written, whoever else grew the file.
        return os.lseek(self._descriptor, 0, os.SEEK_CUR) - len(data)

    def cut(self, size_bytes: int) -> None:
        """Cut the file to ``size_bytes``, durably."""
        os.ftruncate(self._descriptor, size_bytes)
        os.fsync(self._descriptor)

    def end_line(self) -> None:
        """Give the last line the newline it lacks, durably."""
        writing.write_all(self._descriptor, b"\n")
        os.fsync(self._descriptor)

    def size(self) -> int:
        """The file's size now, in bytes, as the descriptor sees it."""
        return os.fstat(self._descriptor).st_size

    def is_still_at_its_path(self) -> bool:
        """Whether the path still names the file that is open here."""
        try:
            return names.FileId.of(os.stat(self.path)) == self.file_id
        except OSError:
            return False

    def read_range(self, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset``, fewer when the file ends before."""
        return os.pread(self._descriptor, length, offset)

    def sync(self) -> None:
        """Make all appended bytes durable."""
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Close the descriptor; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def create_missing(path: Path) -> None:
    """Make ``path`` an empty file, durably; one that exists stays as it is."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    names.sync_dir(path.parent)


def append_lines(path: Path, data: bytes) -> None:
    """Add whole lines to ``path``, durably and in one write; what a crash left of an earlier line is cut off first.

    The caller holds the lock under which the file is written.
    """
    before = path.read_bytes() if path.exists() else b""
    whole = before.rfind(b"\n") + 1
    if whole < len(before):
        _truncate(path, whole)
    file = AppendFile(path)
    try:
        file.append(data)
        file.sync()
    finally:
        file.close()


def _truncate(path: Path, size_bytes: int) -> None:
    """Cut ``path`` to ``size_bytes``, durably."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.ftruncate(descriptor, size_bytes)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

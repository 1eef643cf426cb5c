"""The only module that makes bytes durable: append, atomic publication, repair.

Promises, on a local POSIX file system and on those network file systems that honour fsync:

* ``publish`` and ``staged``: after a crash a reader sees the old file or the new one, never a mixture.
* ``publish_new``: the same, and a file that somebody else has made meanwhile is never replaced.
* ``AppendFile.append``: one write call per batch, newline included; durable after ``sync``.
* Temporary names are hidden, carry a random part and end in ``.tmp``; ``sweep`` removes those a crash left behind.

Not promised: anything about hardware that acknowledges a flush it did not do.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

#: Bytes gathered per call when a file is written in pieces; large enough that the call itself costs nothing.
_BLOCK = 8 << 20
#: Files of a staged directory from which on they are synced side by side, and how many at once.
_MANY = 256
_AT_ONCE = 16
#: Pieces that Linux takes in one call.
_MOST_PIECES = 1024


_NO_DIRECTORY_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS})
#: What a file system without hard links answers.
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})


class FileId(NamedTuple):
    """What the kernel knows a file by; a path can be given to another file, this cannot."""

    dev: int
    ino: int

    @classmethod
    def of(cls, info: os.stat_result) -> FileId:
        return cls(info.st_dev, info.st_ino)


def make_dir(path: Path) -> None:
    """Make ``path`` a directory, parents included, with every new entry durable."""
    missing: list[Path] = []
    here = path
    while not here.is_dir():
        missing.append(here)
        here = here.parent
    for directory in reversed(missing):
        with suppress(FileExistsError):
            directory.mkdir()
        sync_dir(directory.parent)


def sync_dir(path: Path) -> None:
    """Make the names in ``path`` durable: creations, renames and removals."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems have no such call for directories, and make names durable by themselves or not at all.
        if error.errno not in _NO_DIRECTORY_SYNC:
            raise
    finally:
        os.close(descriptor)


def publish(path: Path, data: bytes, *, mode: int | None = None, fence: Callable[[], None] | None = None) -> None:
    """Make ``path`` hold exactly ``data``: after a crash a reader sees the old file or the new one, never a mixture."""
    with staged(path, mode=mode, fence=fence) as file:
        file.write(data)


def publish_lines(path: Path, lines: Iterable[bytes]) -> None:
    """``publish`` for a file made of many pieces, written in blocks."""
    with staged(path) as file:
        file.write_lines(lines)


def publish_new(path: Path, lines: Iterable[bytes], *, fence: Callable[[], None] | None = None) -> None:
    """``publish_lines`` that raises FileExistsError when ``path`` exists by the time the file is whole.

    ``fence`` as for ``staged``. On a file system without hard links the look and the renaming are two steps.
    """
    with staged(path, is_new=True, fence=fence) as file:
        file.write_lines(lines)


def renew(path: Path, fence: Callable[[], None]) -> None:
    """Give ``path`` a file of its own with the same bytes; ``fence`` as for ``staged``.

    Whoever had the old file open goes on in a file without a name: nothing that it writes is ever read again.
    """
    with staged(path, fence=fence) as new, path.open("rb", buffering=0) as old:
        while block := old.read(_BLOCK):
            new.write(block)


@contextmanager
def staged(
    path: Path, *, mode: int | None = None, is_new: bool = False, fence: Callable[[], None] | None = None
) -> Generator[StagedFile]:
    """Give a file to fill that becomes ``path`` in one step when the block ends, and vanishes when it raises.

    A symbolic link stays and its target is replaced. The mode of an existing file is kept unless ``mode`` is given. With
    ``is_new`` nothing is replaced: FileExistsError. ``fence`` raises when the lock of ``path`` is lost. It is asked when the
    temporary file exists: whoever takes the lock after that sweeps it away, and the last step fails with FileNotFoundError.
    """
    target = _target(path)
    if mode is None:
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o666 & ~_umask()
    temporary = _temporary_name(target)
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if fence is not None:
            fence()
        file = StagedFile(descriptor)
        yield file
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
        if is_new:
            _link_new(temporary, target)
        else:
            os.replace(temporary, target)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    finally:
        os.close(descriptor)
    sync_dir(target.parent)


def _link_new(temporary: Path, target: Path) -> None:
    try:
        os.link(temporary, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if target.exists():
            raise FileExistsError(errno.EEXIST, "the destination exists already", str(target)) from error
        os.replace(temporary, target)
    else:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


class StagedFile:
    """A file under a temporary name, written from front to back, or at places that are known before."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.size_bytes = 0

    def write(self, data: bytes) -> None:
        """Add ``data`` at the end."""
        _write_all(self._descriptor, data)
        self.size_bytes += len(data)

    def write_lines(self, lines: Iterable[bytes]) -> None:
        """Add many pieces at the end, written in blocks."""
        for block in _blocks(lines):
            self.write(block)

    def write_at(self, offset: int, lines: Sequence[memoryview]) -> None:
        """Put ``lines`` one after the other from ``offset`` on; forked processes may do so side by side, each at its place."""
        for begin in range(0, len(lines), _MOST_PIECES):
            group = lines[begin : begin + _MOST_PIECES]
            size = sum(map(len, group))
            written = os.pwritev(self._descriptor, group, offset)
            if written < size:
                rest = memoryview(b"".join(group))
                while written < size:
                    written += os.pwrite(self._descriptor, rest[written:], offset + written)
            offset += size

    def read_range(self, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset``, fewer when the file ends before."""
        return os.pread(self._descriptor, length, offset)


@contextmanager
def staged_dir(path: Path) -> Generator[Path]:
    """Give a directory to fill that becomes ``path`` in one rename, and is removed when the block raises.

    Raises FileExistsError when ``path`` exists already: a published directory is never replaced.
    """
    make_dir(path.parent)
    if path.exists() or path.is_symlink():
        raise FileExistsError(17, "the destination exists already", str(path))
    temporary = _temporary_name(path)
    temporary.mkdir(mode=0o755)
    try:
        yield temporary
        entries = list(temporary.rglob("*"))
        _sync_files([entry for entry in entries if entry.is_file()])
        for entry in entries:
            if entry.is_dir():
                sync_dir(entry)
        sync_dir(temporary)
        os.rename(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_dir(path.parent)


def _sync_files(files: Sequence[Path]) -> None:
    """Make the bytes of ``files`` durable. Many at once share commits: 2,000 files take a tenth of the time."""
    if len(files) < _MANY:
        for path in files:
            sync_file(path)
        return
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        # A future each for all of them at once would take more memory than whatever filled the directory.
        for start in range(0, len(files), _MANY):
            deque(pool.map(sync_file, files[start : start + _MANY]), maxlen=0)


def write_new(path: Path, data: bytes) -> None:
    """Write a file inside a staged directory; durable only when that directory is published."""
    write_new_lines(path, [data])


def write_new_lines(path: Path, lines: Iterable[bytes]) -> None:
    """``write_new`` for a file made of many pieces, written in blocks."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        for block in _blocks(lines):
            _write_all(descriptor, block)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make the bytes of ``path`` durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class AppendFile:
    """A file that only grows, one writer at a time; the offset of each append is known.

    Everything goes through one descriptor: when the path is given to another file, that one is never touched.
    """

    def __init__(self, path: Path, *, mode: int = 0o666, must_exist: bool = False) -> None:
        created = not must_exist and not path.exists()
        self.path = path
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (0 if must_exist else os.O_CREAT)
        self._descriptor = os.open(path, flags, mode)
        if created:
            sync_dir(path.parent)
        self.file_id = FileId.of(os.fstat(self._descriptor))

    def append(self, data: bytes) -> int:
        """Add ``data`` at the end and return the offset where it begins. Not durable before ``sync``."""
        _write_all(self._descriptor, data)
        # The kernel leaves the position of an O_APPEND descriptor behind what was written, whoever else grew the file.
        return os.lseek(self._descriptor, 0, os.SEEK_CUR) - len(data)

    def cut(self, size_bytes: int) -> None:
        """Cut the file to ``size_bytes``, durably."""
        os.ftruncate(self._descriptor, size_bytes)
        os.fsync(self._descriptor)

    def end_line(self) -> None:
        """Give the last line the newline it lacks, durably."""
        _write_all(self._descriptor, b"\n")
        os.fsync(self._descriptor)

    def size(self) -> int:
        """The file's size now, in bytes, as the descriptor sees it."""
        return os.fstat(self._descriptor).st_size

    def is_still_at_its_path(self) -> bool:
        """Whether the path still names the file that is open here."""
        try:
            return FileId.of(os.stat(self.path)) == self.file_id
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
    sync_dir(path.parent)


def remove(path: Path) -> None:
    """Remove the file at ``path`` if there is one, durably."""
    with suppress(FileNotFoundError):
        os.unlink(path)
        sync_dir(path.parent)


def remove_tree(path: Path) -> None:
    """Remove the directory at ``path`` with all that is in it: its name is gone in one step, the rest may outlive a crash."""
    temporary = _temporary_name(path)
    os.rename(path, temporary)
    sync_dir(path.parent)
    shutil.rmtree(temporary)


def rename(source: Path, target: Path) -> None:
    """Give ``source`` the name ``target`` in the same directory tree, durably."""
    os.rename(source, target)
    sync_dir(target.parent)
    if source.parent != target.parent:
        sync_dir(source.parent)


def truncate(path: Path, size_bytes: int) -> None:
    """Cut ``path`` to ``size_bytes``, durably."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.ftruncate(descriptor, size_bytes)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def end_line(path: Path) -> None:
    """Give the last line of ``path`` the newline it lacks, durably."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        _write_all(descriptor, b"\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(path: Path) -> list[Path]:
    """Remove the temporaries that a crashed publication of ``path`` left beside it, and name them.

    The caller holds the lock under which ``path`` is published; a live temporary would be removed otherwise.
    """
    target = _target(path)
    if not target.parent.is_dir():
        return []
    name = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{16}}\.tmp")
    left = [entry for entry in target.parent.iterdir() if name.fullmatch(entry.name) and not entry.is_symlink()]
    for entry in left:
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            os.unlink(entry)
    return left


def _target(path: Path) -> Path:
    """The file that ``path`` means: a symbolic link stands for what it leads to."""
    return path.resolve() if path.is_symlink() else path


def _temporary_name(target: Path) -> Path:
    return target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")


def _write_all(descriptor: int, data: bytes) -> None:
    if not data:
        return
    written = os.write(descriptor, data)
    view = memoryview(data)
    while written < len(data):
        written += os.write(descriptor, view[written:])


def _blocks(lines: Iterable[bytes]) -> Iterator[bytes]:
    block = bytearray()
    for line in lines:
        block += line
        if len(block) >= _BLOCK:
            yield bytes(block)
            block.clear()
    if block:
        yield bytes(block)


def _umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current


def overwrite_note(path: Path, data: bytes) -> None:
    """Replace the content of ``path`` in place, keeping its inode. Not atomic and not durable: for notes to people."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, data, 0)
    finally:
        os.close(descriptor)


def open_log(path: Path) -> int:
    """A descriptor for the output of a child process, added at the end of ``path``. Not durable: for people."""
    make_dir(path.parent)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)

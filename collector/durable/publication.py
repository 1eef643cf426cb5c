"""Whole files that appear in one step, under a lock's fence where they must."""

from __future__ import annotations

import errno
import os
import stat
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path

from collector.durable import names, writing

#: What a file system without hard links answers.
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})
#: Pieces that Linux takes in one call.
_MOST_PIECES = 1024
#: Bytes after which another call is cheaper: for a longer one Linux looks for as much memory in one piece, which a virtual
#: machine may first have to ask its host for.
_MOST_BYTES = 1 << 19


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


def renew(path: Path, fence: Callable[[], None] | None, *, size_bytes: int | None = None, ending: bytes = b"") -> None:
    """Give ``path`` a file of its own with the same bytes, or the first ``size_bytes`` of them, and ``ending`` behind them.

    Whoever had the old file open goes on in a file without a name: nothing that it writes is ever read again. ``fence`` as
    for ``staged``.
    """
    with staged(path, fence=fence) as new, path.open("rb", buffering=0) as old:
        left = os.fstat(old.fileno()).st_size if size_bytes is None else size_bytes
        while left and (block := old.read(min(left, writing.BLOCK))):
            new.write(block)
            left -= len(block)
        new.write(ending)


@contextmanager
def staged(
    path: Path, *, mode: int | None = None, is_new: bool = False, fence: Callable[[], None] | None = None
) -> Generator[StagedFile]:
    """Give a file to fill that becomes ``path`` in one step when the block ends, and vanishes when it raises.

    A symbolic link stays and its target is replaced. The mode of an existing file is kept unless ``mode`` is given. With
    ``is_new`` nothing is replaced: FileExistsError. ``fence`` raises when the lock of ``path`` is lost. It is asked when the
    temporary file exists: whoever takes the lock after that sweeps it away, the last step fails, and ``fence`` says why.
    """
    target = names.target_of(path)
    info = target.stat() if target.exists() else None
    if info is not None and not stat.S_ISREG(info.st_mode) and not stat.S_ISDIR(info.st_mode):
        # A link to /dev/null, say: root would make a file of it for the whole machine.
        raise OSError(errno.EINVAL, "No regular file is there, and nothing else is replaced", str(target))
    if mode is None:
        mode = 0o666 & ~_umask() if info is None else stat.S_IMODE(info.st_mode)
    temporary = names.temporary_name(target)
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
    except BaseException as error:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        if fence is not None and isinstance(error, FileNotFoundError):
            fence()
        if isinstance(error, OSError) and error.filename is None:
            # What only knows a descriptor: people want to know which file the disk did not take.
            error.filename = str(path)
        raise
    finally:
        os.close(descriptor)
    names.sync_dir(target.parent)


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


def _umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current


class StagedFile:
    """A file under a temporary name, written from front to back, or at places that are known before."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.size_bytes = 0

    def write(self, data: bytes) -> None:
        """Add ``data`` at the end."""
        writing.write_all(self._descriptor, data)
        self.size_bytes += len(data)

    def write_lines(self, lines: Iterable[bytes]) -> None:
        """Add many pieces at the end, written in blocks."""
        for block in writing.blocks(lines):
            self.write(block)

    def write_at(self, offset: int, lines: Sequence[memoryview]) -> None:
        """Put ``lines`` one after the other from ``offset`` on; forked processes may do so side by side, each at its place."""
        ends = list(accumulate(map(len, lines), initial=0))
        begin = 0
        while begin < len(lines):
            end = bisect_right(ends, ends[begin] + _MOST_BYTES, begin + 2, min(begin + _MOST_PIECES, len(lines)) + 1) - 1
            self._write_group(offset + ends[begin], lines[begin:end], ends[end] - ends[begin])
            begin = end

    def _write_group(self, offset: int, group: Sequence[memoryview], size: int) -> None:
        written = os.pwritev(self._descriptor, group, offset)
        if written < size:
            rest = memoryview(b"".join(group))
            while written < size:
                written += os.pwrite(self._descriptor, rest[written:], offset + written)

    def read_range(self, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset``, fewer when the file ends before."""
        return os.pread(self._descriptor, length, offset)

    def sync(self) -> None:
        """Make what was written until now durable already; publication does so with all of it."""
        os.fdatasync(self._descriptor)

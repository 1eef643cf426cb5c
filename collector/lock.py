"""One writer at a time on a shard path: the lock, who holds it, and the check that it is still ours.

flock excludes other processes of every host that shares one cache-coherent view of the file; NFS clients do not. It is bound
to an inode, so a lock file that is removed or replaced under a live holder lets a second one in: ``is_still_ours`` notices.
"""

from __future__ import annotations

import errno
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Self

import filelock
import msgspec

from collector import durable
from collector.durable import FileId
from collector.errors import FencedError, LockHeldError, RefusedError, UnavailableError


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a lock, as its file says; the process may be gone."""

    host: str
    pid: int
    job_id: str | None = None
    session: int | None = None
    since: str = ""

    def describe(self) -> str:
        """``process 41 on n3 (job 812_0, session 2) since ...``."""
        job = f"job {self.job_id}, " if self.job_id else ""
        session = f"session {self.session}" if self.session is not None else "starting"
        return f"process {self.pid} on {self.host} ({job}{session}) since {self.since}"


class ShardLock:
    """The lock of one rollouts path. Use as a context manager; entering it never waits."""

    def __init__(self, path: Path, *, job_id: str | None = None, since: str = "") -> None:
        self.path = path
        self.holder = Holder(host=socket.gethostname(), pid=os.getpid(), job_id=job_id, since=since)
        self._file_id: FileId | None = None
        self._owner_pid = os.getpid()
        self._lock = filelock.FileLock(
            path, timeout=0, thread_local=False, fallback_to_soft=False, on_acquired=self._remember, mode=_mode_for(path)
        )

    def __enter__(self) -> Self:
        """Take the lock. Raises LockHeldError that names the holder, and explains a file system without flock."""
        durable.make_dir(self.path.parent)
        try:
            self._lock.acquire()
        except filelock.Timeout as error:
            held_by = read_holder(self.path)
            who = held_by.describe() if held_by else "another process"
            raise LockHeldError(
                f"the shard is owned by {who}.", "Wait for it, or cancel its job; nothing was touched.", self.path
            ) from error
        except PermissionError as error:
            raise RefusedError(
                f"the lock cannot be opened: {error.strerror}.", f"Its owner is uid {_owner(self.path)}.", self.path
            ) from error
        except (OSError, NotImplementedError) as error:
            raise UnavailableError(_explain(error), "Use a path on a file system with working locks.", self.path) from error
        self.describe_holder(None)
        return self

    def __exit__(self, *exc: object) -> None:
        self._lock.release()

    def describe_holder(self, session: int | None) -> None:
        """Write into the lock file who holds it; for people only, nothing is decided by it."""
        self.holder = msgspec.structs.replace(self.holder, session=session)
        durable.overwrite_note(self.path, msgspec.json.encode(self.holder) + b"\n")

    def is_still_ours(self) -> bool:
        """Whether the path still names the inode that was locked, in the process that locked it."""
        if os.getpid() != self._owner_pid or self._file_id is None:
            return False
        try:
            return FileId.of(self.path.stat()) == self._file_id
        except OSError:
            return False

    def check(self) -> None:
        """Raise FencedError unless the lock is still ours."""
        if not self.is_still_ours():
            raise FencedError(
                "the lock file was removed, replaced or moved while this collector held it.",
                "It stops without writing; start it again.",
                self.path,
            )

    def _remember(self, descriptor: int) -> None:
        self._file_id = FileId.of(os.fstat(descriptor))


def read_holder(path: Path) -> Holder | None:
    """Who the lock file names; None when it names nobody. Takes no lock."""
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(path.read_bytes(), type=Holder)
    return None


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock at this moment, as far as this host can see. Creates no file."""
    if not path.exists():
        return False
    lock = filelock.FileLock(path, timeout=0, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except filelock.Timeout:
        return True
    lock.release()
    return False


def _mode_for(path: Path) -> int:
    """Group-writable when the directory is, so that a second user of a shared run can take the lock after the first."""
    with suppress(OSError):
        if path.parent.stat().st_mode & 0o020:
            return 0o664
    return 0o644


def _owner(path: Path) -> str:
    with suppress(OSError):
        return str(path.stat().st_uid)
    return "unknown"


def _explain(error: Exception) -> str:
    code = error.errno if isinstance(error, OSError) else None
    if code in {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK} or isinstance(error, NotImplementedError):
        return f"this file system does not lock files ({error})."
    return f"the lock cannot be taken ({error})."

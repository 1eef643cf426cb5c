"""Two ways to hold a lock file, and the probe that says which one its file system needs.

flock is kernel state: it ends with its process, and it excludes only who shares one coherent view of the file. NFS clients
with caches of their own do not, nor do file systems mounted with node-local locks. There the strict soft lock of `filelock`
holds claims as files; it survives its owner's death, so somebody has to say that the owner is gone.
"""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import filelock

from collector import durable
from collector.durable import FileId
from collector.shard.lock_file import STRICT_HEAD


class LockBackend(StrEnum):
    """How a lock is held."""

    FLOCK = "flock"
    STRICT_SOFT = "strict_soft"


#: File systems whose flock excludes on one node only, or whose behaviour nobody vouches for.
_NODE_LOCAL = ("nfs", "nfs4", "beegfs", "fuse", "9p", "cifs", "smb3")
_NO_FLOCK = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK})


class Hold(ABC):
    """One way to hold one lock file. ``acquire`` never waits."""

    backend: LockBackend
    #: Whether the note is part of what is locked: a process that takes the lock and finds a note knows that its writer let go.
    keeps_note: bool

    @abstractmethod
    def acquire(self) -> bool:
        """Take the lock; False when somebody holds it. OSError when it cannot be taken at all."""

    @abstractmethod
    def release(self) -> None:
        """Let the lock go."""

    @abstractmethod
    def is_ours(self) -> bool:
        """Whether it is still this hold that the path stands for."""

    @abstractmethod
    def note_path(self) -> Path:
        """The file that tells people who holds the lock."""

    def break_foreign(self) -> bool:
        """Remove what a dead owner left; False where the kernel does that itself and the owner therefore lives."""
        return False


class FlockHold(Hold):
    """flock on the file, bound to its inode."""

    backend = LockBackend.FLOCK
    keeps_note = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file_id: FileId | None = None
        self._lock = filelock.FileLock(
            path, timeout=0, thread_local=False, fallback_to_soft=False, on_acquired=self._remember, mode=_mode_for(path)
        )

    def acquire(self) -> bool:
        try:
            self._lock.acquire()
        except filelock.Timeout:
            return False
        return True

    def release(self) -> None:
        self._lock.release()

    def is_ours(self) -> bool:
        try:
            return FileId.of(self._path.stat()) == self._file_id
        except OSError:
            return False

    def note_path(self) -> Path:
        return self._path

    def _remember(self, descriptor: int) -> None:
        self._file_id = FileId.of(os.fstat(descriptor))


class StrictSoftHold(Hold):
    """Claims as files beside the lock; holds on NFS, and outlives its owner.

    The note beside them goes with claims that are broken. Who removes the claims by hand may leave it, so it says less than one
    inside a lock: that an owner let go which had nothing more to do.
    """

    backend = LockBackend.STRICT_SOFT
    keeps_note = False

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = filelock.StrictSoftFileLock(path, timeout=0, thread_local=False)
        self._tokens: frozenset[str] = frozenset()

    def acquire(self) -> bool:
        try:
            self._lock.acquire()
        except filelock.Timeout:
            return False
        self._tokens = frozenset(claim.token for claim in self._lock.claims)
        return True

    def release(self) -> None:
        self._lock.release()

    def is_ours(self) -> bool:
        try:
            held = {claim.token for claim in self._lock.claims if claim.state == "held"}
        except OSError:
            return False
        return bool(held) and held <= self._tokens

    def note_path(self) -> Path:
        return self._path.with_name(self._path.name + ".holder")

    def break_foreign(self) -> bool:
        # First of all: a note tells whoever takes the lock that its writer let go.
        durable.remove(self.note_path())
        for claim in self._lock.claims:
            with suppress(FileNotFoundError):
                self._lock.force_break(claim.name)
        return True


def hold_for(path: Path, backend: LockBackend | None = None) -> Hold:
    """The hold that ``path`` needs: what lies there already decides, then ``backend``, then the file system."""
    chosen = _backend_lying_at(path) or backend or probe(path.parent)
    return StrictSoftHold(path) if chosen is LockBackend.STRICT_SOFT else FlockHold(path)


def probe(directory: Path) -> LockBackend:
    """Which backend excludes on the file system of ``directory``, as far as its mount says. Writes nothing."""
    kind, options = mount_of(directory)
    is_node_local = kind.split(".")[0] in _NODE_LOCAL or "localflock" in options
    return LockBackend.STRICT_SOFT if is_node_local else LockBackend.FLOCK


def mount_of(path: Path) -> tuple[str, frozenset[str]]:
    """File system type and mount options of ``path``, from the kernel's table; ``("unknown", {})`` where there is none."""
    real = str(durable.real_path(path))
    best, found = "", ("unknown", frozenset[str]())
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            head, _, tail = line.partition(" - ")
            point = head.split()[4].encode().decode("unicode_escape")
            is_above = real == point or real.startswith(point.rstrip("/") + "/")
            if is_above and len(point) >= len(best):
                kind, _, rest = tail.partition(" ")
                best, found = point, (kind, frozenset(",".join([head.split()[5], *rest.split()[1:]]).split(",")))
    return found


class Failure(NamedTuple):
    """Why a lock cannot be taken at all, and what to do, in words for the message of an error."""

    what: str
    cure: str


def explain_failure(error: OSError | NotImplementedError) -> Failure:
    """What ``error`` says to people."""
    if isinstance(error, NotImplementedError) or error.errno in _NO_FLOCK:
        return Failure(f"this file system does not lock files ({error}).", "Use a path on a file system with working locks.")
    return Failure(f"the lock cannot be taken: {error.strerror or error}.", "Mend that, or use another path.")


def _backend_lying_at(path: Path) -> LockBackend | None:
    try:
        if not path.is_file():
            # To open a pipe is to wait for its other end.
            return None
        with path.open("rb") as file:
            head = file.read(len(STRICT_HEAD))
    except OSError:
        return None
    return LockBackend.STRICT_SOFT if head == STRICT_HEAD else LockBackend.FLOCK


def _mode_for(path: Path) -> int:
    """Group-writable when the directory is, so that a second user of a shared run can take the lock after the first."""
    with suppress(OSError):
        if path.parent.stat().st_mode & 0o020:
            return 0o664
    return 0o644

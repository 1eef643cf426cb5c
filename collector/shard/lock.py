"""One writer at a time on a shard path: the lock, who holds it, and the check that it is still ours."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import msgspec

from collector import durable
from collector.errors import FencedError, LockHeldError, RefusedError, StorageError, UnavailableError, kind_of
from collector.shard.lock_backends import Hold, LockBackend, explain_failure, hold_for
from collector.shard.lock_file import check_lock_file

#: Half a second in all, in which a look at the lock is over many times.
_TRIES: Final = 10
_PAUSE_S: Final = 0.05


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a lock, as its note says; the process may be gone. ``started`` tells a reused pid from the same process."""

    host: str
    pid: int
    started: int | None = None
    job_id: str | None = None
    session: int | None = None
    #: The session of an owner before this one, which held the same lock and therefore has let it go.
    session_before: int | None = None
    since: str = ""

    def describe(self) -> str:
        """``process 41 on n3 (job 812_0, session 2) since ...``."""
        job = f"job {self.job_id}, " if self.job_id else ""
        session = f"session {self.session}" if self.session is not None else "starting"
        since = f" since {self.since}" if self.since else ""
        return f"process {self.pid} on {self.host} ({job}{session}){since}"

    def is_dead_here(self) -> bool:
        """Whether this host can tell that the process is gone. False for a process of another host: who knows."""
        return self.host == socket.gethostname() and process_started(self.pid) != self.started

    def is_stopped_here(self) -> bool:
        """Whether the process lives on this host and was stopped by a signal: its lock lasts until somebody continues it."""
        return self.host == socket.gethostname() and _stat_fields(self.pid)[:1] == ["T"]


class ShardLock:
    """The lock of one path. Use as a context manager; entering it waits half a second at most.

    ``is_gone`` is asked about a holder whose claims outlived it (strict soft locks on shared file systems): it may say True
    only when the scheduler knows that the holder's job has ended.
    """

    def __init__(
        self,
        path: Path,
        *,
        job_id: str | None = None,
        since: str = "",
        backend: LockBackend | None = None,
        is_gone: Callable[[Holder], bool] | None = None,
    ) -> None:
        self.path = path
        pid = os.getpid()
        self.holder = Holder(host=socket.gethostname(), pid=pid, started=process_started(pid), job_id=job_id, since=since)
        self._is_gone = is_gone
        self._backend = backend
        self._owner_pid = pid
        #: The owner whose claims were removed because this host knows that its process is gone.
        self._dead: Holder | None = None
        self._let_go: frozenset[int] = frozenset()
        #: Whether anything tells of an owner before us that it let go. Else there may be one that lives and does not know.
        self.knows_owner_before = False

    def __enter__(self) -> Self:
        """Take the lock. Raises LockHeldError that names the holder, UnavailableError for a file system without locks.

        RefusedError for a place that is closed to us, or where something else than a lock lies.
        """
        try:
            durable.make_dir(self.path.parent)
            check_lock_file(self.path)
            self._hold = hold_for(self.path, self._backend)
            check_lock_file(self._hold.note_path())
            if not self._hold.acquire() and not self._take_over() and not self._acquire_soon():
                raise self._held_by_another()
        except PermissionError as error:
            path = Path(error.filename or self.path)
            what = f"it cannot be opened: {error.strerror}; its owner is uid {_owner(path)}."
            raise RefusedError(what, "Ask for write access to the run directory.", path) from error
        except (OSError, NotImplementedError) as error:
            raise UnavailableError(*explain_failure(error), self.path) from error
        self._learn()
        try:
            self.describe_holder(None)
        except OSError as error:
            _release(self._hold, self.path)
            raise kind_of(error)(f"it cannot be written: {error.strerror}.", "Mend that, then resume.", self.path) from error
        return self

    def __exit__(self, *exc: object) -> None:
        _release(self._hold, self.path)

    @property
    def backend(self) -> LockBackend:
        """How the lock is held."""
        return self._hold.backend

    def describe_holder(self, session: int | None) -> None:
        """Note who holds the lock; for people, and for the question whether a dead owner's claims may be removed."""
        self.holder = msgspec.structs.replace(self.holder, session=session)
        durable.overwrite_note(self._hold.note_path(), msgspec.json.encode(self.holder) + b"\n")

    def was_let_go_by(self, session: int) -> bool:
        """Whether the owner of ``session`` held this very lock before us, so that it holds it no more. -1: of no session yet.

        False after the lock was removed, or taken from an owner that somebody else calls dead: it may live, and not know.
        """
        return session in self._let_go

    def is_still_ours(self) -> bool:
        """Whether the path still stands for our hold, in the process that took it."""
        return os.getpid() == self._owner_pid and self._hold.is_ours()

    def check(self) -> None:
        """Raise FencedError unless the lock is still ours."""
        if not self.is_still_ours():
            raise FencedError(
                "the lock file was removed, replaced or moved while this collector held it.",
                "It stops without writing; start it again.",
                self.path,
            )

    def _acquire_soon(self) -> bool:
        """Whoever asks whether the lock is held takes it for a moment: that is no reason to send a collector away."""
        holder = read_holder(self.path)
        if holder is not None and holder.host == socket.gethostname() and not holder.is_dead_here():
            return False
        for _ in range(_TRIES):
            time.sleep(_PAUSE_S)
            if self._hold.acquire():
                return True
        return False

    def _take_over(self) -> bool:
        """Take the lock of an owner that is certainly dead; False when it may live."""
        holder = read_holder(self.path)
        if holder is None or not (holder.is_dead_here() or (self._is_gone is not None and self._is_gone(holder))):
            return False
        self._dead = holder if holder.is_dead_here() else None
        return self._hold.break_foreign() and self._hold.acquire()

    def _learn(self) -> None:
        """What is certain of the sessions of owners before us, kept for the owner after us."""
        lying = _read_note(self._hold.note_path())
        note = lying if self._hold.keeps_note else self._dead
        self.knows_owner_before = lying is not None or self._dead is not None
        past = () if note is None else (note.session, note.session_before)
        found = frozenset(session for session in past if session is not None)
        self._let_go = found if found or note is None else frozenset({-1})
        self.holder = msgspec.structs.replace(self.holder, session_before=max(self._let_go, default=None))

    def _held_by_another(self) -> LockHeldError:
        holder = read_holder(self.path)
        # The note of a dead process is an old one: whoever holds the lock now has not written its own yet.
        who = holder.describe() if holder and not holder.is_dead_here() else "another process"
        if holder is not None and holder.is_stopped_here():
            who += ", which is stopped (SIGSTOP)"
        cure = "Wait for it, or cancel its job; `gym eval unlock` explains what else can be done. Nothing was touched."
        return LockHeldError(f"the shard is owned by {who}.", cure, self.path)


def read_holder(path: Path) -> Holder | None:
    """Who the lock's note names; None when it names nobody. Takes no lock."""
    return _read_note(path.with_name(path.name + ".holder")) or _read_note(path)


def _read_note(path: Path) -> Holder | None:
    with suppress(OSError, msgspec.DecodeError):
        if path.is_file():
            return msgspec.json.decode(path.read_bytes(), type=Holder)
    return None


def _release(hold: Hold, path: Path) -> None:
    try:
        hold.release()
    except OSError as error:
        what = f"the lock cannot be released: {error.strerror}."
        raise StorageError(what, "It ends with this process; what is recorded stays recorded.", path) from error


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock at this moment, as far as this host can see. Creates no file."""
    if not path.exists():
        return False
    hold = hold_for(path)
    if not hold.acquire():
        return True
    _release(hold, path)
    return False


def break_lock(path: Path) -> None:
    """Remove the claims of an owner that a person says is dead. Raises LockHeldError when this host sees it alive."""
    hold = hold_for(path)
    if hold.acquire():
        _release(hold, path)
        return
    holder = read_holder(path)
    alive_here = holder is not None and holder.host == socket.gethostname() and not holder.is_dead_here()
    if alive_here or not hold.break_foreign():
        who = holder.describe() if holder else "a process"
        raise LockHeldError(f"the lock is held by {who}, which is alive.", "End that process; the lock ends with it.", path)


def process_started(pid: int) -> int | None:
    """When a process of this host started, in clock ticks since boot; None when there is none."""
    fields = _stat_fields(pid)
    return int(fields[19]) if fields else None


def _stat_fields(pid: int) -> list[str]:
    """The kernel's facts on a process from its state on; empty when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    # The command name may hold spaces and parentheses; fields are counted behind its end.
    return stat.rpartition(")")[2].split()


def _owner(path: Path) -> str:
    with suppress(OSError):
        return str(path.stat().st_uid)
    return "unknown"

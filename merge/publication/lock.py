"""The lock that lets many finishers of one benchmark wait for each other, for a bounded time."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from collector.errors import LockHeldError
from collector.shard.lock import ShardLock, read_holder

#: Longest wait in seconds; a merge of a terabyte takes less, and a job's tail must end.
_WAIT_S: Final = 1800.0
_POLL_S: Final = 0.1


@contextmanager
def waiting_lock(path: Path, *, timeout_s: float = _WAIT_S) -> Generator[ShardLock]:
    """Hold the lock at ``path``, waiting for whoever has it. Raises LockHeldError after ``timeout_s``.

    It protects the files that are published under it; each of them is replaced atomically, so a lost lock costs work, no data.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        lock = ShardLock(path)
        try:
            lock.__enter__()
        except LockHeldError as error:
            if time.monotonic() >= deadline:
                raise _gave_up(path, timeout_s) from error
            time.sleep(_POLL_S)
            continue
        break
    try:
        yield lock
    finally:
        lock.__exit__(None, None, None)


def _gave_up(path: Path, timeout_s: float) -> LockHeldError:
    holder = read_holder(path)
    # A merge is no session of a collector: only who and where is told.
    who = f"process {holder.pid} on {holder.host}" if holder else "another process"
    return LockHeldError(f"{who} still holds the lock after {timeout_s:g} s.", "Wait for it, or end it.", path)

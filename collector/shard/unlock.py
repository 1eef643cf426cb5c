"""What can be done about a lock that is in the way: said in words first, and done only for an owner that does not live."""

from __future__ import annotations

from pathlib import Path

from collector.errors import NotFoundError
from collector.shard.lock import Holder, break_lock, is_held, read_holder
from collector.shard.lock_backends import LockBackend, hold_for

_ON_ITS_OWN = "The kernel ends this lock with its process, so there is nothing to remove."


def explain_unlock(path: Path) -> str:
    """Who holds the lock at ``path`` and what would free it, in one line. Changes nothing.

    Raises NotFoundError when no such lock was ever taken.
    """
    if not path.exists():
        raise NotFoundError("there is no such lock.", "Name the rollouts file, or its lock beside it.", path)
    if not is_held(path):
        return f"{path}: nobody holds it. The next collector just takes it."
    holder = read_holder(path)
    backend = hold_for(path).backend
    return f"{path}: held by {holder.describe() if holder else 'a process that left no note'}. {_advice(holder, backend)}"


def unlock(path: Path) -> str:
    """Free the lock at ``path`` and say what was done. Raises LockHeldError when its owner lives as far as anybody can see.

    The caller has asked a person: for an owner on another host only they or the scheduler know whether it is gone.
    """
    if not path.exists():
        raise NotFoundError("there is no such lock.", "Name the rollouts file, or its lock beside it.", path)
    was_held = is_held(path)
    break_lock(path)
    return f"{path}: {'its dead owner was removed' if was_held else 'nobody held it, nothing was changed'}."


def _advice(holder: Holder | None, backend: LockBackend) -> str:
    if backend is LockBackend.FLOCK:
        who = "That process lives" if holder is None or not holder.is_dead_here() else "A process that inherited it lives"
        job = f", or cancel job {holder.job_id}" if holder is not None and holder.job_id else ""
        return f"{who}: end it{job}. {_ON_ITS_OWN}"
    if holder is not None and holder.is_dead_here():
        return "That process is gone: the next collector takes the lock over by itself, and unlocking removes it now."
    job = f"job {holder.job_id}" if holder is not None and holder.job_id else "that process"
    return (
        f"The lock is a file that outlives its owner, and this host cannot see whether {job} still runs. "
        f"Make sure that it has ended, then unlock: a living owner would notice and stop, and lose what was in flight."
    )

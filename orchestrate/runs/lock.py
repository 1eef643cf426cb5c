"""The lock of a run's receipts: one command at a time changes which jobs a run has, or what lies in its directory."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress

import filelock

from collector import durable
from collector.errors import NotFoundError, RefusedError
from orchestrate.runs.directory import RunDir


@contextmanager
def submit_lock(run: RunDir) -> Generator[None]:
    """Alone with the run's receipts. Raises RefusedError while another command is, NotFoundError when there is no run."""
    lock = filelock.FileLock(run.submit_lock, timeout=0, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except filelock.Timeout as error:
        what = "another command is at work on this run (submit, resubmit, cancel or clean)."
        raise RefusedError(what, "Run this one again when that is done.", run.submit_lock) from error
    try:
        _check_still_there(run)
        yield
    finally:
        lock.release()


def _check_still_there(run: RunDir) -> None:
    """Raise NotFoundError when the run was removed meanwhile, and undo what the lock made of it.

    filelock makes the directories of a lock that are missing, and one without a run would keep a new one from its place.
    """
    if run.plan.exists():
        return
    with suppress(OSError):
        durable.remove(run.submit_lock)
        run.root.rmdir()
    raise NotFoundError("there is no run here.", "A run directory has a plan.json.", run.root)

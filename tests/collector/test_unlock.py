"""A lock that is in the way is explained before anything is removed, and a living owner keeps it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from collector.errors import LockHeldError, NotFoundError
from collector.shard.lock import ShardLock, is_held
from collector.shard.lock_backends import LockBackend
from collector.shard.unlock import explain_unlock, unlock
from tests.support import testkit

_DIE_HOLDING = """
import os, signal, sys
from pathlib import Path
from collector.shard.lock import ShardLock
from collector.shard.lock_backends import LockBackend
with ShardLock(Path(sys.argv[1]), backend=LockBackend.STRICT_SOFT, job_id="812_0") as lock:
    lock.describe_holder(3)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def leave_claims(path: Path, *, host: str | None) -> None:
    """A strict soft lock whose owner was killed: its claims stay; with ``host``, its note says that it ran there."""
    subprocess.run([sys.executable, "-c", _DIE_HOLDING, str(path)], env=testkit.environment(), cwd=testkit.ROOT, check=False)
    note = path.with_name(path.name + ".holder")
    if host is not None:
        note.write_text(note.read_text().replace(f'"host":"{os.uname().nodename}"', f'"host":"{host}"'))


def test_a_lock_that_was_never_taken_is_not_found(tmp_path: Path) -> None:
    for act in (explain_unlock, unlock):
        with pytest.raises(NotFoundError, match="no such lock"):
            act(tmp_path / "rollouts.jsonl.lock")

    assert not list(tmp_path.iterdir())


def test_a_free_lock_needs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with ShardLock(path):
        pass

    assert "nobody holds it" in explain_unlock(path)
    assert "nothing was changed" in unlock(path)


def test_a_kernel_lock_names_its_living_holder_and_is_not_broken(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"

    with ShardLock(path, job_id="7"):
        said = explain_unlock(path)
        with pytest.raises(LockHeldError, match="is alive"):
            unlock(path)
        held = is_held(path)

    assert "(job 7, starting)" in said
    assert "end it, or cancel job 7" in said
    assert held


def test_the_claims_of_an_owner_elsewhere_are_removed_on_the_word_of_a_person(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    leave_claims(path, host="another-node")

    said = explain_unlock(path)
    still_held = is_held(path)
    done = unlock(path)

    assert "on another-node (job 812_0, session 3)" in said
    assert "cannot see whether job 812_0 still runs" in said
    assert still_held
    assert "its dead owner was removed" in done
    with ShardLock(path, backend=LockBackend.STRICT_SOFT) as lock:
        lock.check()


def test_the_claims_of_an_owner_that_died_here_need_nobody(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    leave_claims(path, host=None)

    assert "the next collector takes the lock over by itself" in explain_unlock(path)
    with ShardLock(path) as lock:
        lock.check()

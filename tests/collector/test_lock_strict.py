"""Where flock does not exclude, claims do; they outlive their owner, and are removed only when it is certainly dead."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.errors import FencedError, LockHeldError
from collector.shard.lock import ShardLock, break_lock, is_held
from collector.shard.lock_backends import LockBackend, probe
from tests.support import testkit

STRICT = LockBackend.STRICT_SOFT
_HOLD = """
import sys, time
from pathlib import Path
from collector.shard.lock import ShardLock
from collector.shard.lock_backends import LockBackend
with ShardLock(Path(sys.argv[1]), backend=LockBackend.STRICT_SOFT, job_id="77_1"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", _HOLD, str(tmp_path / "x.lock")]
    with subprocess.Popen(command, env=testkit.environment(), cwd=testkit.ROOT, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield child
        child.kill()


def pretend_another_host(path: Path) -> None:
    """The note as a collector on another node would have left it."""
    note = path.with_name(path.name + ".holder")
    note.write_text(note.read_text().replace(f'"host":"{os.uname().nodename}"', '"host":"n9"'))


def test_a_live_owner_keeps_others_out_and_is_named(tmp_path: Path, owner: subprocess.Popen[bytes]) -> None:
    with pytest.raises(LockHeldError, match=rf"process {owner.pid} on .* \(job 77_1"), ShardLock(tmp_path / "x.lock"):
        pass

    assert is_held(tmp_path / "x.lock")


def test_claims_of_a_process_that_died_here_are_taken_over(tmp_path: Path, owner: subprocess.Popen[bytes]) -> None:
    owner.send_signal(signal.SIGKILL)
    owner.wait()

    with ShardLock(tmp_path / "x.lock") as lock:
        assert (lock.backend, lock.is_still_ours()) == (STRICT, True)


def test_claims_of_another_host_are_taken_over_only_when_its_job_is_said_to_be_gone(
    tmp_path: Path, owner: subprocess.Popen[bytes]
) -> None:
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    path = tmp_path / "x.lock"
    pretend_another_host(path)
    asked: list[str | None] = []

    with pytest.raises(LockHeldError, match="on n9"), ShardLock(path, is_gone=lambda _: False):
        pass
    with ShardLock(path, is_gone=lambda holder: asked.append(holder.job_id) or True) as lock:
        assert lock.is_still_ours()

    assert asked == ["77_1"]


def test_a_person_may_remove_claims_of_another_host_but_never_of_a_live_process(
    tmp_path: Path, owner: subprocess.Popen[bytes]
) -> None:
    path = tmp_path / "x.lock"
    with pytest.raises(LockHeldError, match="which is alive"):
        break_lock(path)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    pretend_another_host(path)

    break_lock(path)

    assert not is_held(path)


def test_an_owner_whose_claims_were_removed_stops(tmp_path: Path) -> None:
    with ShardLock(tmp_path / "x.lock", backend=STRICT) as lock:
        lock._hold.break_foreign()  # what a person on another host may do by mistake

        with pytest.raises(FencedError):
            lock.check()


def test_the_lock_that_lies_there_decides_how_it_is_held(tmp_path: Path) -> None:
    with ShardLock(tmp_path / "x.lock", backend=STRICT):
        pass

    with ShardLock(tmp_path / "x.lock") as lock:
        assert lock.backend is STRICT


def test_a_local_file_system_is_locked_by_flock(tmp_path: Path) -> None:
    assert probe(tmp_path) is LockBackend.FLOCK

"""Faults of locks, as people met them: missing, taken away, inherited by a child, or owned by somebody else."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.errors import LockHeldError
from collector.shard.lock import ShardLock, is_held
from tests.outcomes.bench import Bench, environment
from tests.support import testkit
from tests.support.requirements import require


@pytest.mark.parametrize("error", ["ENOSYS", "ENOLCK", "EOPNOTSUPP"])
def test_d9_a_file_system_without_locks_is_refused_and_never_downgraded_in_silence(bench: Bench, error: str) -> None:
    """flock fails: exit 5 with the reason before the first write. Where it works, every session says how its lock was held."""
    require("injecting faults into system calls", [] if shutil.which("strace") else ["strace"])
    bench.tasks({})
    config = bench.write_config()
    trace = ["strace", "-f", "-qq", "-o", os.devnull, "-e", "trace=flock", "-e", f"inject=flock:error={error}"]

    refused = subprocess.run(
        [*trace, *bench.command(config)], env=environment(), cwd=testkit.ROOT, capture_output=True, text=True, check=False
    )

    assert refused.returncode == 5
    assert "this file system does not lock files" in refused.stderr
    assert (bench.asked(), bench.artifacts.manifest.exists()) == ({}, False)
    bench.fill()
    assert [event["lock"] for event in bench.events("session_started")] == ["flock"]


@pytest.mark.parametrize("harm", ["lock-deleted", "lock-replaced", "directory-moved-and-remade"])
def test_d11_a_collector_whose_lock_was_taken_away_stops_and_its_successor_doubles_nothing(bench: Bench, harm: str) -> None:
    """Somebody cleans up the lock file, or the whole directory, of a live run and starts it again: exit 4, and one row a task."""
    bench.tasks(*[{}] * 8)
    bench.base |= {"agent": {"type": "acted", "delay_s": 0.5}, "retry": {"max_attempts": 9}}
    first = bench.start()
    bench.wait_for_rows(2)
    run = bench.artifacts.rollouts.parent
    if harm == "directory-moved-and-remade":
        run.rename(run.with_name("moved"))
        run.mkdir()
    else:
        bench.artifacts.lock.unlink()
    if harm == "lock-replaced":
        bench.artifacts.lock.touch()

    second = bench.run(num_samples_in_parallel=8)
    _, said = first.communicate(timeout=30)

    assert (first.returncode, second.returncode) == (4, 0), said
    assert "It stops without writing" in said
    assert sorted(row["n"] for row in bench.rows()) == list(range(8))
    assert bench.fill().coverage.measured == 8


_FORKED = """
import os, sys, time
from pathlib import Path
from collector.errors import FencedError
from collector.shard.lock import ShardLock
with ShardLock(Path(sys.argv[1])) as lock:
    if os.fork() == 0:
        Path(sys.argv[2]).write_text(str(os.getpid()))
        deadline = time.monotonic() + 30
        while not Path(sys.argv[2] + ".go").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        try:
            lock.check()
            said = "may write"
        except FencedError:
            said = "fenced"
        Path(sys.argv[2] + ".said").write_text(said)
        os._exit(0)
    print("held", flush=True)
    time.sleep(60)
"""


def test_d12_a_forked_child_holds_nothing_and_may_write_nothing(tmp_path: Path) -> None:
    """The collector is killed while a worker it forked lives on: the lock is free at once, and the worker cannot write."""
    path, pid_file = tmp_path / "x.lock", tmp_path / "child"
    parent = subprocess.Popen(
        [sys.executable, "-c", _FORKED, str(path), str(pid_file)],
        env=environment(),
        cwd=testkit.ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    parent.stdout.readline()
    wait_for_file(pid_file)
    held = is_held(path)

    parent.kill()
    parent.wait()
    # Not communicate(): the child has the other end of the pipe too.
    parent.stdout.close()
    with ShardLock(path) as lock:
        pid_file.with_name("child.go").touch()
        wait_for_file(pid_file.with_name("child.said"))
        lock.check()

    assert held
    assert pid_file.with_name("child.said").read_text() == "fenced"


def wait_for_file(path: Path) -> None:
    deadline = time.monotonic() + 10
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_d12_opening_a_shard_twice_in_one_process_fails_at_once(tmp_path: Path) -> None:
    """Two lock objects for one file must not wait for each other."""
    begun = time.monotonic()

    with ShardLock(tmp_path / "x.lock"), pytest.raises(LockHeldError), ShardLock(tmp_path / "x.lock"):
        pass

    assert time.monotonic() - begun < 10


_AS_USER = """
import os, sys
from pathlib import Path
from tests.outcomes.bench import Bench, install
install()
Bench(Path(sys.argv[1])).fill()
os.setgroups([]); os.setgid(60001); os.setuid(60002 if sys.argv[3] == "second" else 60001); os.umask(int(sys.argv[4], 8))
from collector.errors import GymEvalError
try:
    Bench(Path(sys.argv[2])).fill(dispatch_budget_s=0 if sys.argv[3] == "first" else None)
except GymEvalError as error:
    print(error)
    sys.exit(error.exit_code)
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that two users of one group may reach."""
    directory = Path(tempfile.mkdtemp(prefix="shared-"))
    directory.chmod(0o2775)
    os.chown(directory, -1, 60001)
    yield directory
    shutil.rmtree(directory)


@pytest.mark.parametrize("umask", ["0002", "0022"])
def test_d23_a_second_user_of_a_shared_run_is_let_in_or_told_which_file_keeps_them_out(
    shared: Path, tmp_path: Path, umask: str
) -> None:
    """The first user made the run: with a group-writable directory the second resumes it, otherwise one line names file and owner."""
    require("running as another user", [] if os.geteuid() == 0 else ["root"])
    mine = shared / "mine"
    mine.mkdir(mode=0o2775)
    for path in (mine, *[tmp_path / "warm"]):
        path.mkdir(exist_ok=True)
        Bench(path).tasks({"say": "one"}, {})
        (path / "tasks.jsonl").chmod(0o664)
    mine.chmod(0o2775)
    os.chown(mine, 60001, 60001)

    def as_user(which: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", _AS_USER, str(tmp_path / "warm"), str(mine), which, umask]
        return subprocess.run(command, env=environment(), cwd=testkit.ROOT, capture_output=True, text=True, check=False)

    first, second = as_user("first"), as_user("second")

    assert first.returncode == 0, first.stderr
    lock = mine / "run" / "rollouts.jsonl.lock"
    if umask == "0002":
        assert stat.S_IMODE(lock.stat().st_mode) & 0o060 == 0o060
        assert second.returncode == 0, second.stdout + second.stderr
        assert len((mine / "run" / "rollouts.jsonl").read_bytes().splitlines()) == 2
    else:
        assert second.returncode == 4, second.stderr
        assert str(lock) in second.stdout
        assert "60001" in second.stdout
        assert (mine / "run" / "rollouts.jsonl").read_bytes() == b""

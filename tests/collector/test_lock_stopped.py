"""A collector that is stopped, outlived by its child, or robbed of its lock file: what the next one sees, and who wins."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from collector import durable
from collector.artifacts import RunArtifacts
from collector.errors import FencedError, LockHeldError, StorageError
from collector.session import JobFacts, ShardSession
from collector.settings import RunSettings
from collector.shard.lock import ShardLock
from tests.collector.shards import asked, fill, prepare, rollout_ids, rows_of, settings_for, states, write_dataset
from tests.support import testkit

_COLLECT = """
import sys
from pathlib import Path
from collector.errors import FencedError
from tests.collector.shards import fill, settings_for
from tests.support import testkit
testkit.install()
try:
    fill(settings_for(Path(sys.argv[1]), num_samples_in_parallel=4, agent={"delay_s": 0.05}, retry={"max_attempts": 60}))
except FencedError as error:
    sys.exit(f"FENCED {error}")
"""


def slow(directory: Path) -> RunSettings:
    return settings_for(directory, num_samples_in_parallel=4, agent={"delay_s": 0.05}, retry={"max_attempts": 60})


@contextmanager
def stopped_collector(settings: RunSettings) -> Iterator[subprocess.Popen[str]]:
    """A collector that was stopped while it had requests in flight; continued and awaited by whoever uses it."""
    directory = settings.input_jsonl_fpath.parent
    command = [sys.executable, "-c", _COLLECT, str(directory)]
    child = subprocess.Popen(command, env=testkit.environment(), cwd=testkit.ROOT, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 30
        while not (settings.output_jsonl_fpath.exists() and settings.output_jsonl_fpath.stat().st_size):
            assert time.monotonic() < deadline
            assert child.poll() is None
            time.sleep(0.01)
        child.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        yield child
    finally:
        child.kill()
        child.wait()


def test_a_stopped_collector_keeps_its_shard_and_is_named_as_stopped(tmp_path: Path) -> None:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": n, "grade": 1} for n in range(60)])
    settings = slow(tmp_path)

    with (
        stopped_collector(settings) as child,
        pytest.raises(LockHeldError, match=rf"process {child.pid} on .*, which is stopped \(SIGSTOP\)"),
    ):
        fill(settings)


def test_a_continued_collector_whose_lock_file_was_removed_neither_writes_nor_wins(tmp_path: Path) -> None:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": n, "grade": 1} for n in range(60)])
    settings = slow(tmp_path)
    artifacts = RunArtifacts(settings.output_jsonl_fpath)

    with stopped_collector(settings) as child:
        artifacts.lock.unlink()
        fill(settings)
        before = {path: path.read_bytes() for path in artifacts.rollouts.parent.iterdir()}
        child.send_signal(signal.SIGCONT)
        _, said = child.communicate(timeout=30)

    assert said.startswith("FENCED"), said
    assert {path: path.read_bytes() for path in artifacts.rollouts.parent.iterdir()} == before
    # A request whose dispatch was durable when it was stopped may still leave; one without a dispatch never does.
    dispatched = Counter(event["rollout_id"] for event in rows_of(artifacts.journal) if event["event"] == "dispatched")
    assert not asked(tmp_path) - dispatched
    assert sorted(rollout_ids(artifacts.rollouts)) == sorted(f"{n}-0" for n in range(60))
    assert states(settings) == {"measured": 60}


class LockThatSleeps(ShardLock):
    """Before its first check, what happens while its collector is stopped."""

    meanwhile: Callable[[], object] | None = None

    def check(self) -> None:
        happens, self.meanwhile = self.meanwhile, None
        if happens is not None:
            happens()
        super().check()


def test_a_collector_stopped_between_reading_and_repairing_repairs_nothing(tmp_path: Path) -> None:
    """It read a torn line, slept, and a successor cut that line: cutting there now would cut the successor's records."""
    write_dataset(tmp_path / "tasks.jsonl", [{"n": 0, "grade": 1}])
    settings = settings_for(tmp_path)
    artifacts = prepare(settings)
    artifacts.journal.write_bytes(b'{"event":"session_st')

    def succeed() -> None:
        artifacts.lock.unlink()
        with ThreadPoolExecutor() as other:
            other.submit(fill, settings).result()

    with LockThatSleeps(artifacts.lock) as lock:
        lock.meanwhile = succeed
        with pytest.raises(FencedError):
            ShardSession.open(artifacts, lock, JobFacts(), is_synced=True)

    assert states(settings) == {"measured": 1}


def test_a_journal_that_grows_while_it_is_read_is_somebody_elses(tmp_path: Path) -> None:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": 0, "grade": 1}])
    artifacts = prepare(settings_for(tmp_path))
    # An owner before us that let go: the files are taken as they stand.
    with ShardLock(artifacts.lock):
        pass

    with LockThatSleeps(artifacts.lock) as lock:
        lock.meanwhile = lambda: artifacts.journal.write_bytes(b'{"event":')
        with pytest.raises(FencedError, match="written by another session"):
            ShardSession.open(artifacts, lock, JobFacts(), is_synced=True)

    assert artifacts.journal.read_bytes() == b'{"event":'


_FORKS = """
import os, sys, time
from pathlib import Path
from collector.shard.lock import ShardLock
lock = ShardLock(Path(sys.argv[1])).__enter__()
child = os.fork()
if not child:
    os.close(1)
    time.sleep(60)
print(child, flush=True)
os._exit(0)
"""


def test_a_forked_child_that_outlives_its_collector_does_not_hold_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    command = [sys.executable, "-c", _FORKS, str(lock)]
    done = subprocess.run(command, env=testkit.environment(), cwd=testkit.ROOT, stdout=subprocess.PIPE, text=True, check=True)

    try:
        with ShardLock(lock) as mine:
            mine.check()
    finally:
        os.kill(int(done.stdout), signal.SIGKILL)


def test_a_program_that_a_collector_starts_does_not_inherit_its_lock(tmp_path: Path) -> None:
    fds = "/proc/self/fd"
    code = f"import os; print([os.readlink('{fds}/' + n) for n in os.listdir('{fds}') if os.path.exists('{fds}/' + n)])"

    with ShardLock(tmp_path / "x.lock"):
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True, close_fds=False)

    assert "x.lock" not in done.stdout


@pytest.mark.parametrize("alias", ["link/x.lock", "real//x.lock", "real/../real/x.lock"])
def test_every_name_of_a_path_is_the_same_lock(tmp_path: Path, alias: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path)

    with ShardLock(tmp_path / "real" / "x.lock") as lock:
        for path in (tmp_path / alias, Path(alias)):
            with pytest.raises(LockHeldError, match=f"process {os.getpid()} on"):
                ShardLock(path).__enter__()
        lock.check()


def test_a_note_that_cannot_be_written_leaves_no_lock_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    lock = ShardLock(tmp_path / "x.lock")
    monkeypatch.setattr(durable, "overwrite_note", full)
    with pytest.raises(StorageError, match="No space left"):
        lock.__enter__()
    monkeypatch.undo()

    with ShardLock(tmp_path / "x.lock") as second:
        second.check()

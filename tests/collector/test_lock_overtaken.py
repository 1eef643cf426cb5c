"""A collector that was stopped before any disk call and robbed of its lock: its successor never sees a byte of it again."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from collector import durable, jsonl
from collector.artifacts import RunArtifacts
from collector.errors import FencedError
from collector.formats.events import Dispatched, Success, encode
from collector.formats.record import Attempt, record
from collector.outcomes import Answer, Completed, Verdict
from collector.session import JobFacts, ShardSession
from collector.settings import RunSettings
from collector.shard.lock import ShardLock, break_lock
from collector.shard.lock_backends import LockBackend
from collector.shard.store import RolloutStore
from tests.collector.shards import fill, prepare, recorded, settings_for, states, write_dataset
from tests.collector.test_timeline import interrupt
from tests.support import testkit


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("way", "least"),
    [
        pytest.param(["after"], 50, id="outrun"),
        # With the lock just taken, in the preparation, before the first event, in the middle of rows and events, and at the end.
        pytest.param(["within", "--first", "5", "20", "31", "45", "58", "--step", "3"], 50, id="side-by-side"),
        pytest.param(["thrice", "--first", "31", "45", "--step", "4"], 20, id="outrun-twice"),
        pytest.param(["after", "--case", "imported"], 50, id="import-outrun"),
        pytest.param(
            ["within", "--case", "imported", "--first", "4", "8", "12", "16", "--step", "3"], 60, id="import-side-by-side"
        ),
        pytest.param(["after", "--case", "overridden"], 30, id="override-outrun"),
        pytest.param(["within", "--case", "overridden", "--first", "5", "8", "--step", "3"], 20, id="override-side-by-side"),
        pytest.param(["after", "--case", "regraded"], 90, id="regrading-outrun"),
        pytest.param(
            ["within", "--case", "regraded", "--first", "9", "16", "24", "--step", "5"], 50, id="regrading-side-by-side"
        ),
        pytest.param(["after", "--case", "replaced"], 100, id="replacement-outrun"),
        pytest.param(
            ["within", "--case", "replaced", "--first", "6", "12", "30", "--step", "5"], 50, id="replacement-side-by-side"
        ),
    ],
)
def test_an_owner_that_wakes_before_any_disk_call_changes_nothing_of_its_successor(
    tmp_path: Path, way: list[str], least: int
) -> None:
    command = [sys.executable, "-m", "tests.collector.overtaken", str(tmp_path / "overtaken"), *way]

    done = subprocess.run(command, env=testkit.environment(), cwd=testkit.ROOT, capture_output=True, text=True, check=True)

    figures = json.loads(done.stdout)
    assert figures["wrong"] == {}, done.stderr
    assert figures["points"] > least


def test_an_owner_that_had_not_begun_its_session_meets_a_successor_on_files_of_its_own(tmp_path: Path) -> None:
    """The session before it had ended well, so no file told of it; its first event tore the journal of its successor."""
    write_dataset(tmp_path / "tasks.jsonl", [{"n": n, "grade": 1, "fail": n} for n in range(2)])
    fill(settings_for(tmp_path, retry={"max_attempts": 1}))
    settings = settings_for(tmp_path, retry={"max_attempts": 3})
    artifacts = RunArtifacts(settings.output_jsonl_fpath)
    with ShardLock(artifacts.lock), artifacts.journal.open("ab") as late:
        artifacts.lock.unlink()

        fill(settings)

        assert artifacts.journal.stat().st_ino != os.fstat(late.fileno()).st_ino
    assert states(settings) == {"measured": 2}


@pytest.mark.parametrize("backend", LockBackend)
def test_a_successor_after_an_ended_session_copies_nothing_when_its_owner_let_go(tmp_path: Path, backend: LockBackend) -> None:
    path = tmp_path / "x.lock"
    with ShardLock(path, backend=backend) as first:
        assert not first.knows_owner_before

    with ShardLock(path, backend=backend) as second:
        assert second.knows_owner_before


def test_claims_that_a_person_had_removed_tell_nothing_of_their_owner(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    lock = ShardLock(path, backend=LockBackend.STRICT_SOFT)
    lock.__enter__()
    note = path.with_name("x.lock.holder")
    note.write_text(note.read_text().replace(f'"host":"{lock.holder.host}"', '"host":"n9"'))

    break_lock(path)

    with ShardLock(path) as successor:
        assert not successor.knows_owner_before


def test_a_successor_of_an_owner_that_may_live_works_on_files_of_its_own(tmp_path: Path) -> None:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": n, "grade": 1} for n in range(3)])
    settings = settings_for(tmp_path)
    artifacts = prepare(settings)
    with ShardLock(artifacts.lock) as lock:
        owner = ShardSession.open(artifacts, lock, JobFacts(), is_synced=False)
        before = {path: path.stat().st_ino for path in (artifacts.journal, artifacts.rollouts, artifacts.failures)}
        artifacts.lock.unlink()

        fill(settings)

        assert not {path.stat().st_ino for path in before} & set(before.values())
        with pytest.raises(FencedError):
            owner.check()


def test_a_successor_of_an_owner_that_let_go_works_on_its_files(tmp_path: Path) -> None:
    """Copying them would cost a resume the time and the space of all that is recorded."""
    write_dataset(tmp_path / "tasks.jsonl", [{"n": n, "grade": 1} for n in range(3)])
    settings = settings_for(tmp_path)
    artifacts = prepare(settings)
    with ShardLock(artifacts.lock) as lock:
        # Without an end: what a killed session leaves.
        ShardSession.open(artifacts, lock, JobFacts(), is_synced=False)
    # Commands take the lock, too, and begin no session.
    with ShardLock(artifacts.lock):
        pass
    before = {path: path.stat().st_ino for path in (artifacts.journal, artifacts.rollouts, artifacts.failures)}

    fill(settings)

    assert {path: path.stat().st_ino for path in before} == before
    assert states(settings) == {"measured": 3}


def test_an_owner_that_only_somebody_else_calls_dead_may_live(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    lock = ShardLock(path, backend=LockBackend.STRICT_SOFT)
    lock.__enter__()
    lock.describe_holder(3)
    note = path.with_name("x.lock.holder")
    note.write_text(note.read_text().replace(f'"host":"{lock.holder.host}"', '"host":"n9"'))

    with ShardLock(path, is_gone=lambda _: True) as successor:
        assert not successor.was_let_go_by(3)
        with pytest.raises(FencedError):
            lock.check()


def test_a_publication_whose_lock_is_lost_replaces_nothing(tmp_path: Path) -> None:
    """It checked in time, and slept: whoever took the lock then swept its temporary file away."""
    path = tmp_path / "x.json"

    def sleep() -> None:
        durable.sweep(path)
        durable.publish(path, b"new")

    with pytest.raises(FileNotFoundError):
        durable.publish(path, b"old", fence=sleep)

    assert path.read_bytes() == b"new"


def test_a_late_batch_in_the_middle_of_a_successors_records_never_wins(tmp_path: Path) -> None:
    """What no collector leaves on storage that keeps its word: readers take it for what it is all the same."""
    write_dataset(tmp_path / "tasks.jsonl", [{"n": n, "grade": 1, "fail": n // 2} for n in range(3)])
    settings = settings_for(tmp_path, num_samples_in_parallel=1, retry={"max_attempts": 2})
    artifacts = prepare(settings)
    interrupt(artifacts, 0, job=JobFacts(), reason=None)
    fill(settings.model_copy(update={"retry": settings.retry.model_copy(update={"max_attempts": 1})}))
    assert states(settings) == {"unknown": 1, "measured": 1, "failed": 1}
    fill_again = settings.model_copy(update={"retry": settings.retry.model_copy(update={"max_attempts": 4})})
    with pytest.raises(FencedError):
        _slip_in(artifacts, fill_again)
    kept = recorded(artifacts)

    fill(fill_again)

    assert states(settings) == {"measured": 3}
    assert {name: row for name, row in recorded(artifacts).items() if name in kept} == kept
    assert '"_ng_attempt_index":1' in recorded(artifacts)["0-0"]
    with RolloutStore.read(artifacts) as store:
        assert (store.history.late_events, store.repairs.ignored_rows) == (2, 0)


def _slip_in(artifacts: RunArtifacts, settings: RunSettings) -> None:
    """A session that records 0-0, finds a batch of session 0 behind it, and stops before it records another thing."""

    async def run() -> None:
        with ShardLock(artifacts.lock) as lock:
            session = ShardSession.open(artifacts, lock, JobFacts(), is_synced=False)
            try:
                source = session.store.inventory.line(0)
                attempt = Attempt(
                    index=0, number=1, rollout_id="0-0", run_id=session.run_id, session=session.number, source=source,
                    row=jsonl.loads(source),
                )  # fmt: skip
                done = Completed(answer=Answer(response={}, text=""), verdict=Verdict(reward=1.0))
                await session.dispatch(0, 1)
                made = record(attempt, done, 0.1)
                await session.settle(0, made.draft, made.line)
                _append_late(artifacts, msgspec.structs.replace(attempt, number=0, session=0), done)
                await session.dispatch(2, 1)
            finally:
                await session.abandon()

    asyncio.run(run())


def _append_late(artifacts: RunArtifacts, attempt: Attempt, done: Completed) -> None:
    """The row and the outcome of an attempt of session 0, and a dispatch that it wanted to make."""
    made = record(attempt, done, 0.1)
    assert made.line is not None
    common: dict[str, Any] = {"run_id": attempt.run_id, "session": 0, "at": ""}
    success = Success(
        **common, seq=2, rollout_id="0-0", attempt_index=0, offset=artifacts.rollouts.stat().st_size, length=len(made.line),
        checksum=zlib.crc32(made.line), reward=1,
    )  # fmt: skip
    wanted = Dispatched(**common, seq=3, rollout_id="1-0", attempt_index=0)
    for path, data in ((artifacts.rollouts, made.line), (artifacts.journal, encode(success) + encode(wanted))):
        with path.open("ab") as file:
            file.write(data)

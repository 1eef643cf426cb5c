"""The timeline of a rollout tells every attempt, who made it, how it ended, and what the next resume would do."""

from __future__ import annotations

import asyncio
import json
import os
import zlib
from pathlib import Path
from typing import Any

import pytest

from collector.artifacts import RunArtifacts
from collector.errors import CorruptArtifactError, NotFoundError
from collector.formats.events import Success, encode
from collector.outcomes import RolloutState
from collector.session import JobFacts, ShardSession
from collector.settings import RetrySettings
from collector.shard.lock import ShardLock
from collector.state.codes import Past
from collector.timeline.reading import Timeline, render, timeline_of
from collector.timeline.words import next_step
from tests.collector.shards import RUN_ID, fill, prepare, settings_for, write_dataset


@pytest.fixture
def artifacts(tmp_path: Path) -> RunArtifacts:
    """Task 0 fails twice and is measured at its third attempt; task 1 fails for good; task 2 was never tried."""
    rows = [{"n": 0, "grade": 0.5, "fail": 2}, {"n": 1, "grade": 1, "fail": 1, "terminal": True}]
    write_dataset(tmp_path / "tasks.jsonl", rows)
    settings = settings_for(tmp_path)
    fill(settings)
    return RunArtifacts(settings.output_jsonl_fpath)


def interrupt(artifacts: RunArtifacts, index: int, *, job: JobFacts, reason: str | None) -> None:
    """A session that dispatches rollout ``index`` and ends without its outcome, with or without a word."""

    async def session() -> None:
        with ShardLock(artifacts.lock) as lock:
            opened = ShardSession.open(artifacts, lock, job, is_synced=False)
            await opened.dispatch(index, opened.store.history.past(index).dispatched)
            await (opened.abandon() if reason is None else opened.end(reason))

    asyncio.run(session())


def test_every_attempt_is_told_with_its_failure_and_its_session(artifacts: RunArtifacts) -> None:
    timeline = timeline_of(artifacts, "0-0")

    assert [attempt.end for attempt in timeline.attempts] == ["failed", "failed", "measured"]
    first, last = timeline.attempts[0], timeline.attempts[-1]
    assert first.failure is not None
    assert (first.failure.failure_class, first.failure.http_status, first.failure.reason) == (
        "agent_run_error",
        500,
        "scripted",
    )
    assert (first.session.pid, first.session.lock, first.session.ended) == (os.getpid(), "flock", "final")
    assert (last.reward, last.remark, last.failure) == (0.5, None, None)
    assert last.elapsed_s is not None
    assert (timeline.state, timeline.next_step, timeline.is_suspect) == ("measured", "nothing: measured", False)


def test_an_interrupted_attempt_names_the_job_that_ended_without_it(tmp_path: Path) -> None:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": 0, "grade": 1}])
    artifacts = prepare(settings_for(tmp_path))
    interrupt(artifacts, 0, job=JobFacts("812_3", 2), reason=None)
    interrupt(artifacts, 0, job=JobFacts(), reason="terminated")

    timeline = timeline_of(artifacts, "0-0")

    killed, stopped = timeline.attempts
    assert (killed.end, killed.session.job_id, killed.session.restart_count) == ("interrupted", "812_3", 2)
    assert killed.remark == "session 0 ended without it (no session_ended: killed?)"
    assert stopped.remark == "session 1 ended without it (terminated)"
    assert timeline.next_step == "would be dispatched as attempt 2"
    told = "\n".join(render(timeline))
    assert "session 0 (process" in told
    assert "job 812_3 restart 2, lock flock" in told


def test_an_attempt_of_the_session_that_holds_the_lock_is_in_flight(tmp_path: Path) -> None:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": 0, "grade": 1}])
    artifacts = prepare(settings_for(tmp_path))

    async def during() -> Timeline:
        with ShardLock(artifacts.lock) as lock:
            session = ShardSession.open(artifacts, lock, JobFacts(), is_synced=False)
            await session.dispatch(0, 0)
            timeline = timeline_of(artifacts, "0-0")
            await session.abandon()
        return timeline

    timeline = asyncio.run(during())

    assert [attempt.end for attempt in timeline.attempts] == ["in_flight"]
    assert timeline.next_step.startswith("it is in flight now")
    assert timeline_of(artifacts, "0-0").attempts[0].end == "interrupted"


def test_a_rollout_that_was_never_tried_has_no_attempts_and_would_get_the_first(tmp_path: Path) -> None:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": 0, "grade": 1}])
    artifacts = prepare(settings_for(tmp_path))

    timeline = timeline_of(artifacts, "0-0")

    assert (timeline.attempts, timeline.next_step) == ((), "would be dispatched as attempt 0")
    assert "never dispatched" in render(timeline)


def test_an_unknown_id_names_near_ones(artifacts: RunArtifacts) -> None:
    with pytest.raises(NotFoundError, match=r"no rollout '1-7' among 2\. Near to it: 1-0"):
        timeline_of(artifacts, "1-7")


def test_a_row_without_its_event_is_told_as_recovered(artifacts: RunArtifacts) -> None:
    lines = artifacts.journal.read_bytes().splitlines(keepends=True)
    position = max(n for n, line in enumerate(lines) if b'"event":"success"' in line)
    artifacts.journal.write_bytes(b"".join(lines[:position]))
    before = artifacts.journal.read_bytes()

    timeline = timeline_of(artifacts, "0-0")

    assert (timeline.attempts[-1].end, timeline.attempts[-1].recovered) == ("measured", True)
    assert artifacts.journal.read_bytes() == before


def test_a_row_cut_off_by_a_crash_is_told_as_such(artifacts: RunArtifacts) -> None:
    artifacts.rollouts.write_bytes(artifacts.rollouts.read_bytes()[:-20])

    timeline = timeline_of(artifacts, "0-0", RetrySettings(max_attempts=4))

    last = timeline.attempts[-1]
    assert (last.end, timeline.next_step) == ("interrupted", "would be dispatched as attempt 3")
    assert last.remark is not None
    assert last.remark.startswith("its row was cut off by a crash")


def test_a_result_that_comes_after_a_newer_session_began_is_told_and_does_not_count(tmp_path: Path) -> None:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": 0, "grade": 1}])
    artifacts = prepare(settings_for(tmp_path))
    interrupt(artifacts, 0, job=JobFacts(), reason=None)
    interrupt(artifacts, 0, job=JobFacts(), reason=None)
    row = artifacts.inventory.read_bytes()[:-2] + b',"reward":1,"_ng_run_id":"%s","_ng_session":0}\n' % RUN_ID.encode()
    artifacts.rollouts.write_bytes(row)
    late = Success(
        run_id=RUN_ID, session=0, seq=2, at="", rollout_id="0-0", attempt_index=0, offset=0, length=len(row),
        checksum=zlib.crc32(row), reward=1,
    )  # fmt: skip
    artifacts.journal.write_bytes(artifacts.journal.read_bytes() + encode(late))

    timeline = timeline_of(artifacts, "0-0")

    assert [attempt.end for attempt in timeline.attempts] == ["interrupted", "interrupted"]
    assert timeline.attempts[0].remark == "its outcome came after session 1 began and does not count"
    assert timeline.next_step == "would be dispatched as attempt 2"


def test_a_failure_row_that_was_changed_is_refused(artifacts: RunArtifacts) -> None:
    artifacts.failures.write_bytes(artifacts.failures.read_bytes().replace(b"500", b"501", 1))

    with pytest.raises(CorruptArtifactError, match="not the one that was recorded"):
        timeline_of(artifacts, "0-0")


def test_the_timeline_is_plain_json(artifacts: RunArtifacts) -> None:
    said: dict[str, Any] = json.loads(json.dumps(timeline_of(artifacts, "1-0").to_json()))

    assert said["attempts"][0]["failure"]["terminal"] is True
    assert said["attempts"][0]["session"]["number"] == 0
    assert said["next_step"] == "nothing: the failure is terminal (agent_run_error)"


def past(state: RolloutState, dispatched: int, recorded: int, **more: Any) -> Past:
    return Past(state=state, dispatched=dispatched, recorded=recorded, **{"terminal": False, **more})


FAILED, UNKNOWN = RolloutState.FAILED, RolloutState.UNKNOWN


@pytest.mark.parametrize(
    ("found", "retry", "words"),
    [
        pytest.param(past(RolloutState.NEVER_DISPATCHED, 0, 0), {}, "would be dispatched as attempt 0", id="never"),
        pytest.param(past(FAILED, 1, 1), {}, "would be dispatched as attempt 1", id="failed-once"),
        pytest.param(past(RolloutState.MASKED, 1, 1), {}, "nothing: masked", id="masked"),
        pytest.param(
            past(UNKNOWN, 3, 1),
            {},
            "nothing: attempts exhausted (3 dispatched, 2 interrupted); raise retry.max_attempts above 3, or give "
            "interruptions an allowance of their own: retry.max_interruptions of 2 or more",
            id="exhausted-by-interruption",
        ),
        pytest.param(
            past(FAILED, 3, 3),
            {},
            "nothing: attempts exhausted (3 dispatched, 0 interrupted); raise retry.max_attempts above 3",
            id="exhausted-by-failure",
        ),
        pytest.param(
            past(UNKNOWN, 4, 1),
            {"max_interruptions": 2},
            "nothing: attempts exhausted (4 dispatched, 3 interrupted); raise retry.max_interruptions to 3 or more",
            id="allowance-used-up",
        ),
        pytest.param(
            past(FAILED, 1, 1, terminal=True, failure_class="timeout_exceeded"),
            {},
            "nothing: the failure is terminal (timeout_exceeded); retry.retry_terminal_timeouts would open it again",
            id="curable",
        ),
        pytest.param(
            past(FAILED, 1, 1, failure_class="skipped"),
            {"retry_terminal_timeouts": True},
            "nothing: the sample was skipped for good",
            id="skipped",
        ),
    ],
)
def test_what_comes_next_is_said_with_the_setting_that_would_change_it(found: Past, retry: dict[str, Any], words: str) -> None:
    assert next_step(found, RetrySettings(**retry)) == words


def test_what_is_advised_is_enough(tmp_path: Path) -> None:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": 0, "grade": 1}])
    artifacts = prepare(settings_for(tmp_path))
    for _ in range(3):
        interrupt(artifacts, 0, job=JobFacts(), reason=None)
    advised = timeline_of(artifacts, "0-0")

    assert "retry.max_interruptions of 3 or more" in advised.next_step
    assert advised.is_suspect
    assert timeline_of(artifacts, "0-0", RetrySettings(max_interruptions=3)).next_step == "would be dispatched as attempt 3"
    assert timeline_of(artifacts, "0-0", RetrySettings(max_attempts=4)).next_step == "would be dispatched as attempt 3"

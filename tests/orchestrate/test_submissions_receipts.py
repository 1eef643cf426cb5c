"""Receipts: their format, what a crash leaves of them, and which shards need a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.errors import CorruptArtifactError
from orchestrate.runs.submissions import (
    Failed,
    Outcome,
    Prepared,
    ShardNeed,
    Submission,
    Submitted,
    append,
    encode,
    latest_jobs,
    parse,
    read_submissions,
    shard_needs,
)
from orchestrate.scheduler import JobFact, Knowledge

PREPARED = Prepared(at="2026-01-01T00:00:00+00:00", token="gym-a-1", benchmark="a", indexes=(0, 2), deadline=1700000000.0)
SUBMITTED = Submitted(at="2026-01-01T00:00:01+00:00", token="gym-a-1", jobs={0: "12_0", 2: "12_1"})
FAILED = Failed(at="2026-01-01T00:00:02+00:00", token="gym-a-1", reason="no account")

RUNNING = JobFact(Knowledge.KNOWN, "RUNNING")
PENDING = JobFact(Knowledge.KNOWN, "PENDING", "BeginTime")
ENDED = JobFact(Knowledge.KNOWN, "FAILED")
GONE = JobFact(Knowledge.NOT_THERE)
SILENT = JobFact(Knowledge.COULD_NOT_ASK, detail="squeue gave no answer")


@pytest.mark.parametrize("receipt", [PREPARED, SUBMITTED, FAILED], ids=["prepared", "submitted", "failed"])
def test_a_receipt_survives_its_line(receipt: Prepared | Submitted | Failed) -> None:
    assert parse(encode(receipt)) == receipt


def test_format_1_is_exactly_this() -> None:
    assert encode(PREPARED) == (
        b'{"event":"prepared","benchmark":"a","indexes":[0,2],"deadline":1700000000.0,'
        b'"schema_version":1,"at":"2026-01-01T00:00:00+00:00","token":"gym-a-1"}\n'
    )
    assert encode(SUBMITTED) == (
        b'{"event":"submitted","jobs":{"0":"12_0","2":"12_1"},"found":false,'
        b'"schema_version":1,"at":"2026-01-01T00:00:01+00:00","token":"gym-a-1"}\n'
    )


@pytest.mark.parametrize("cut", range(1, len(encode(SUBMITTED))))
def test_a_torn_last_receipt_is_none_and_the_next_one_is_whole(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "submissions.jsonl"
    path.write_bytes(encode(PREPARED) + encode(SUBMITTED)[:-cut])

    torn = read_submissions(path)
    append(path, SUBMITTED)

    assert [submission.outcome for submission in torn] == [Outcome.OPEN]
    assert [submission.outcome for submission in read_submissions(path)] == [Outcome.SUBMITTED]
    assert path.read_bytes() == encode(PREPARED) + encode(SUBMITTED)


def test_a_line_that_is_no_receipt_is_named(tmp_path: Path) -> None:
    path = tmp_path / "submissions.jsonl"
    path.write_bytes(encode(PREPARED) + b"{}\n" + encode(SUBMITTED))

    with pytest.raises(CorruptArtifactError, match=r"submissions\.jsonl:2"):
        read_submissions(path)


def test_the_newest_job_of_a_shard_counts() -> None:
    later = Submission(PREPARED, Outcome.SUBMITTED, {2: "40"})

    assert latest_jobs([Submission(PREPARED, Outcome.SUBMITTED, SUBMITTED.jobs), later], "a") == {0: "12_0", 2: "40"}


@pytest.mark.parametrize(
    ("is_final", "outcome", "fact", "need"),
    [
        pytest.param(True, Outcome.SUBMITTED, RUNNING, ShardNeed.FINAL, id="final-whatever-runs"),
        pytest.param(False, Outcome.SUBMITTED, RUNNING, ShardNeed.LIVE, id="running"),
        pytest.param(False, Outcome.SUBMITTED, PENDING, ShardNeed.LIVE, id="requeued-and-waiting"),
        pytest.param(False, Outcome.SUBMITTED, ENDED, ShardNeed.JOB, id="ended"),
        pytest.param(False, Outcome.SUBMITTED, GONE, ShardNeed.JOB, id="forgotten"),
        pytest.param(False, Outcome.SUBMITTED, SILENT, ShardNeed.UNCERTAIN, id="could-not-ask"),
        pytest.param(False, Outcome.OPEN, None, ShardNeed.UNCERTAIN, id="answer-lost"),
        pytest.param(False, Outcome.FAILED, None, ShardNeed.JOB, id="refused"),
        pytest.param(True, Outcome.OPEN, None, ShardNeed.FINAL, id="final-whatever-was-lost"),
    ],
)
def test_a_shard_needs_a_job_only_when_it_certainly_has_none(
    is_final: bool, outcome: Outcome, fact: JobFact | None, need: ShardNeed
) -> None:
    submission = Submission(PREPARED, outcome, {0: "12_0"} if fact else {})

    needs = shard_needs([0], final={0: is_final}, submissions=[submission], facts={"12_0": fact or GONE})

    assert needs == {0: need}


def test_one_live_job_of_several_is_enough() -> None:
    first = Submission(PREPARED, Outcome.SUBMITTED, {0: "12_0"})
    second = Submission(PREPARED, Outcome.SUBMITTED, {0: "40"})

    needs = shard_needs([0], final={0: False}, submissions=[first, second], facts={"12_0": ENDED, "40": RUNNING})

    assert needs == {0: ShardNeed.LIVE}

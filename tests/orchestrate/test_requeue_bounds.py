"""When a job may run again: so often, so long, and half as often when it gets nothing done."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from collector.errors import ConfigError
from collector.formats import events
from orchestrate.config.submit import Requeue
from orchestrate.config.values import duration_seconds
from orchestrate.jobs import requeue
from orchestrate.jobs.requeue import JobRun, read_job_runs, why_not_again
from tests.orchestrate.fake_slurm import FakeSlurm

START = datetime(2026, 1, 1, tzinfo=UTC)


def run(restart: int, *, outcomes: int = 1, job_id: str = "7", minutes: float = 10) -> JobRun:
    begun = START + timedelta(hours=restart)
    return JobRun(job_id, restart, begun, begun + timedelta(minutes=minutes), outcomes)


@pytest.mark.parametrize(
    ("runs", "restarts", "allowed"),
    [
        pytest.param([], 0, True, id="the-first-run"),
        pytest.param([run(0), run(1), run(2)], 3, True, id="three-with-progress"),
        pytest.param([run(0), run(1), run(2), run(3)], 4, True, id="at-the-limit"),
        pytest.param([run(0), run(1), run(2), run(3), run(4)], 5, False, id="beyond-the-limit"),
        pytest.param([run(0, outcomes=0), run(1, outcomes=0)], 2, True, id="two-in-vain-are-four"),
        pytest.param([run(0, outcomes=0), run(1, outcomes=0), run(2)], 3, False, id="two-in-vain-and-one"),
        pytest.param([], 3, False, id="three-that-never-came-to-collecting"),
        pytest.param([run(0, job_id="6"), run(1, job_id="6")], 3, False, id="another-jobs-progress-does-not-count"),
    ],
)
def test_requeues_are_bounded_by_number_and_progress(runs: list[JobRun], restarts: int, allowed: bool) -> None:
    why = why_not_again(Requeue(max_requeues=4), runs, "7", restarts)

    assert (why is None) is allowed
    assert why is None or "max_requeues is 4" in why


def test_time_spent_is_bounded_over_all_runs_of_a_job() -> None:
    runs = [run(0, minutes=50), run(1, minutes=20), run(0, job_id="6", minutes=600)]

    assert why_not_again(Requeue(max_walltime="0-2"), runs, "7", 2) is None
    told = why_not_again(Requeue(max_walltime="70"), runs, "7", 2)
    assert told == "1 hour 10 minutes were spent on it in 3 runs; max_walltime is 1 hour 10 minutes"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400), ("1:30", 90), ("240:00", 14400), ("01:00:00", 3600), ("12:00:00", 43200), ("0-5", 18000),
        ("0-12:30", 45000), ("2-12", 216000), ("1-02:03:04", 93784), ("90m", 5400), ("4h", 14400),
    ],
)  # fmt: skip
def test_a_duration_is_read_as_slurm_reads_it(text: str, seconds: int) -> None:
    assert duration_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "1:2:3:4", "-5", "1-", "0", "0:00", "1.5", "٣"])
def test_what_is_no_duration_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration|zero"):
        duration_seconds(text)


def test_a_number_is_asked_to_be_quoted() -> None:
    with pytest.raises(ValueError, match="quote it"):
        Requeue.model_validate({"max_walltime": 43200})


def test_sessions_are_read_from_a_torn_journal(tmp_path: Path) -> None:
    common = {"run_id": "r", "at": "2026-01-01T00:00:00+00:00"}
    later = {"run_id": "r", "at": "2026-01-01T00:01:00+00:00"}
    written = [
        events.SessionStarted(session=0, seq=0, reason="fresh", host="n1", pid=1, job_id="7", restart_count=0, **common),
        events.Dispatched(session=0, seq=1, rollout_id="0-0", attempt_index=0, **later),
        events.SessionStarted(session=1, seq=0, reason="resume", host="n1", pid=1, job_id="7", restart_count=1, **later),
        events.OmittedEvent(session=1, seq=1, rollout_id="0-0", attempt_index=0, reason="x", **later),
    ]
    path = tmp_path / "rollouts_attempts.jsonl"
    path.write_bytes(b"".join(map(events.encode, written)) + b'{"event":"succ')

    found = read_job_runs(path)

    assert [(r.job_id, r.restart, r.outcomes, r.seconds) for r in found] == [("7", 0, 0, 60.0), ("7", 1, 1, 0.0)]


def test_a_misspelt_bound_is_refused_with_the_right_name(tmp_path: Path) -> None:
    from orchestrate.config.load import load_config

    data = {
        "compute": {"here": {"type": "local"}},
        "driver": {
            "benchmarks": {
                "a": {"run": {"input_jsonl_fpath": "x", "verifier": {"type": "exact_match"}}, "requeue": {"max_requeue": 1}}
            }
        },
        "job": {"output_path": "/x"},
    }
    with pytest.raises(ConfigError, match=r"driver\.benchmarks\.a\.requeue\.max_requeue: unknown key\. .*max_requeues"):
        load_config(data, where=tmp_path, environ={})


@pytest.mark.parametrize(
    ("scontrol", "is_requeued"),
    [
        pytest.param('test -z "$SBATCH_PARTITION"', True, id="taken-back"),
        pytest.param("exit 1", False, id="refused"),
        pytest.param("exec sleep 30", False, id="no-answer"),
        pytest.param(None, False, id="not-installed"),
    ],
)
def test_a_requeue_that_did_not_happen_is_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scontrol: str | None, is_requeued: bool
) -> None:
    fake = FakeSlurm(tmp_path / "bin")
    monkeypatch.setattr(requeue, "_REQUEUE_TIMEOUT_S", 1.0)
    monkeypatch.setenv("SBATCH_PARTITION", "other")
    if scontrol is None:
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        fake.program("scontrol", scontrol)
        monkeypatch.setenv("PATH", fake.env["PATH"])

    assert requeue.requeue_job("7_0") is is_requeued

"""What a run spent is counted from its journals: a result that is lost, late or a failure by now is not in the score."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from collector.artifacts import RunArtifacts
from collector.formats.moves import Moved, publish_moved
from orchestrate.cli.waste_text import waste_text
from orchestrate.operate.waste import BenchmarkWaste, WasteReport, waste_of
from orchestrate.runs.directory import RunDir
from tests.collector.shards import rows_of
from tests.orchestrate.project import Project
from tests.support import testkit
from tests.support.processes import wait_for

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunArtifacts:
    """The finished shard of a run of four tasks."""
    project = Project(tmp_path / "user", {"type": "local", "max_concurrent": 1})
    testkit.install()
    for name, value in project.environment().items():
        monkeypatch.setenv(name, value)
    project.benchmark("math", tasks=4)
    project.submit()
    wait_for((project.run_dir / "math" / "rollouts_merge.json").exists, 60)
    return RunArtifacts(project.run_dir / "math" / "shards" / "0-of-1" / "rollouts.jsonl")


def figures(shard: RunArtifacts) -> tuple[int, int, int]:
    """Measured, interrupted, failed."""
    report = waste_of(RunDir(shard.rollouts.parents[3]))
    assert not report.troubles
    found = report.benchmarks[0]
    return found.measured, found.interrupted_attempts, found.failed_attempts


def add(shard: RunArtifacts, what: str, **fields: object) -> None:
    """One more event in the session of the run."""
    found = rows_of(shard.journal)
    result = next(event for event in found if event["event"] == "success")
    common = {
        key: result[key] for key in ("schema_version", "run_id", "session", "at", "rollout_id", "attempt_index", "offset")
    }
    event = {"event": what, **common, "seq": len(found), **fields}
    with shard.journal.open("ab") as file:
        file.write(orjson.dumps(event) + b"\n")


def test_a_result_that_became_a_failure_is_a_failed_attempt_and_not_measured(shard: RunArtifacts) -> None:
    measured, interrupted, failed = figures(shard)

    add(shard, "migrated", offset=0, length=9, checksum=0, failure_class="judge_invalid", kind=None, reason="x", elapsed_s=1.5)

    assert figures(shard) == (measured - 1, interrupted, failed + 1)


def test_a_result_whose_row_was_lost_is_an_interruption(shard: RunArtifacts) -> None:
    measured, interrupted, failed = figures(shard)

    add(shard, "lost", file="rollouts", reason="x")

    assert figures(shard) == (measured - 1, interrupted + 1, failed)


def test_a_rollout_that_moved_to_another_shard_is_not_this_ones(shard: RunArtifacts) -> None:
    measured, interrupted, failed = figures(shard)
    result = next(event for event in rows_of(shard.journal) if event["event"] == "success")

    publish_moved(shard, [Moved(rollout_id=result["rollout_id"], to=1)])

    assert figures(shard) == (measured - 1, interrupted, failed)


def test_an_attempt_that_was_omitted_on_purpose_was_not_interrupted(shard: RunArtifacts) -> None:
    lines = shard.journal.read_bytes().splitlines(keepends=True)
    position = next(n for n, line in enumerate(lines) if line.startswith(b'{"event":"success"'))
    saved = orjson.loads(lines[position])
    kept = {key: saved[key] for key in ("schema_version", "run_id", "session", "seq", "at", "rollout_id", "attempt_index")}
    before = figures(shard)

    lines[position] = orjson.dumps({"event": "omitted", **kept, "reason": "x"}) + b"\n"
    shard.journal.write_bytes(b"".join(lines))

    assert figures(shard) == (before[0] - 1, before[1], before[2])


@pytest.mark.parametrize("has_ended", [pytest.param(True, id="ended"), pytest.param(False, id="at-work")])
def test_an_attempt_in_flight_is_not_called_cut_off(shard: RunArtifacts, *, has_ended: bool) -> None:
    """``status --waste`` of a run at work counted every request in flight as cut off."""
    events = rows_of(shard.journal)
    before = figures(shard)
    last = max(position for position, event in enumerate(events) if event["event"] == "success")
    kept = [e for position, e in enumerate(events) if position != last and (has_ended or e["event"] != "session_ended")]

    shard.journal.write_bytes(b"".join(orjson.dumps({**e, "seq": seq}) + b"\n" for seq, e in enumerate(kept)))

    assert figures(shard) == (before[0] - 1, before[1] + has_ended, before[2])
    assert waste_of(RunDir(shard.rollouts.parents[3])).benchmarks[0].open_attempts == (not has_ended)


def test_the_waste_fits_a_terminal_and_says_all_of_it() -> None:
    report = WasteReport(
        name="eval-1f2e3d4c",
        accounting_trouble="Slurm accounting storage is disabled",
        benchmarks=[
            BenchmarkWaste(
                benchmark="arithmetic", measured=88, job_s=75.2, interrupted_attempts=5, open_attempts=16, failed_attempts=32
            )
        ],
    )

    narrow, wide = waste_text(report, 80), waste_text(report)

    assert max(map(len, narrow.splitlines())) <= 80
    assert "\narithmetic: failed attempts 32 (0 s)\n" in narrow
    assert "arithmetic: 16 attempts have no outcome yet: in flight, or cut off with a" in narrow
    assert "failed attempts  cut off\narithmetic  88" in wide

"""Many finishers of one benchmark: one projection, whoever comes last, and nothing before all shards are final."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collector.artifacts import RunArtifacts
from collector.errors import NotFoundError, RefusedError
from collector.outcomes import RolloutState
from collector.settings import RetrySettings
from merge.publication.partial import published_at
from merge.publication.projection_check import ProjectionState, check_projection
from merge.tail import MergeOutcome, MergeState, merge_when_final
from tests.merge import jobs
from tests.merge.build import Plan, answered, failed, fill, fill_all, plan, prepare_only

RETRY = RetrySettings()


@pytest.fixture
def made(tmp_path: Path) -> Plan:
    return plan(tmp_path / "bench", shards=3, tasks=6)


def finish(made: Plan, *, allow_partial: bool = False, retry: RetrySettings = RETRY) -> MergeOutcome:
    return merge_when_final(made.merged, made.shards, benchmark="bench", retry=retry, allow_partial=allow_partial)


def files_beside_shards(made: Plan) -> list[str]:
    return sorted(path.name for path in made.directory.iterdir() if path.name != "shards")


def test_nothing_is_written_while_a_shard_is_not_final(made: Plan) -> None:
    fill(made, 0, lambda *_: answered())
    fill(made, 1, lambda task, _: failed(terminal=False) if task == 2 else answered())
    prepare_only(made, 2)

    outcome = finish(made)

    assert outcome.state is MergeState.WAITING
    assert (outcome.coverage.measured, outcome.coverage.unfinished, outcome.coverage.expected) == (3, 3, 6)
    assert files_beside_shards(made) == []


def test_a_shard_that_was_never_prepared_keeps_the_others_waiting_and_is_counted(made: Plan) -> None:
    fill(made, 0, lambda *_: answered())

    outcome = finish(made)

    assert outcome.state is MergeState.WAITING
    assert outcome.coverage.expected == 6
    assert outcome.coverage.states[RolloutState.UNKNOWN] == 4


def test_the_last_finisher_publishes_everything_and_the_next_one_does_nothing(made: Plan) -> None:
    fill_all(made, lambda *_: answered())

    first = finish(made)
    written = {name: (made.directory / name).stat().st_mtime_ns for name in files_beside_shards(made)}
    second = finish(made)

    assert (first.state, second.state) == (MergeState.MERGED, MergeState.ALREADY_MERGED)
    assert second.receipt == first.receipt
    for name in ("rollouts.jsonl", "rollouts_aggregate_metrics.json", "rollouts_coverage.json", "rollouts_merge.json"):
        assert (made.directory / name).stat().st_mtime_ns == written[name]
    assert not made.merged.recovery_companions_present()


@pytest.mark.parametrize("lost", ["rollouts", "coverage", "aggregate", "receipt"])
@pytest.mark.parametrize("how", ["removed", "edited"])
def test_a_projection_that_is_not_whole_is_made_again(made: Plan, lost: str, how: str) -> None:
    fill_all(made, lambda *_: answered())
    first = finish(made)
    path: Path = getattr(made.merged, lost)
    before = path.read_bytes()
    if how == "removed":
        path.unlink()
    else:
        path.write_bytes(before.replace(b"1", b"2", 1))
    assert check_projection(made.merged).state is not ProjectionState.VERIFIED

    again = finish(made)

    assert again.state is MergeState.MERGED
    assert again.receipt == first.receipt
    assert path.read_bytes() == before
    assert check_projection(made.merged).state is ProjectionState.VERIFIED


def test_a_shard_that_went_on_makes_its_projection_stale(made: Plan) -> None:
    fill_all(made, lambda task, _: [failed(terminal=False)] * 3 if task == 0 else answered())
    first = finish(made)
    assert first.coverage.measured == 5
    raised = RetrySettings(max_attempts=4)
    assert finish(made, retry=raised).state is MergeState.WAITING
    fill(made, 0, lambda task, _: answered(0.0) if task == 0 else [])

    check = check_projection(made.merged)
    second = finish(made, retry=raised)

    assert check.state is ProjectionState.STALE
    assert second.state is MergeState.MERGED
    assert second.coverage.measured == 6


def test_a_session_that_only_ended_does_not_make_it_stale(made: Plan) -> None:
    fill_all(made, lambda *_: answered())
    finish(made)
    fill(made, 0, lambda *_: [])

    assert finish(made).state is MergeState.ALREADY_MERGED


def test_a_partial_projection_is_labelled_in_its_name_and_gone_when_all_is_there(made: Plan) -> None:
    fill(made, 0, lambda *_: answered())
    fill(made, 1, lambda *_: answered())

    part = finish(made, allow_partial=True)
    again = finish(made, allow_partial=True)
    named = {path.name for path in made.directory.iterdir() if path.is_file() and "lock" not in path.name}
    assert published_at(made.merged).rollouts.name == "rollouts.partial.jsonl"
    fill(made, 2, lambda *_: answered())
    whole = finish(made)

    assert [part.state, again.state, whole.state] == [MergeState.MERGED, MergeState.ALREADY_MERGED, MergeState.MERGED]
    assert part.receipt is not None
    assert (part.receipt.partial, part.receipt.missing_shards) == (True, (2,))
    assert whole.receipt is not None
    assert not whole.receipt.partial
    assert whole.coverage.measured == 6
    assert named
    assert all(name.startswith("rollouts.partial") for name in named)
    assert not list(made.directory.glob("rollouts.partial*"))
    assert published_at(made.merged) == made.merged


@pytest.mark.parametrize("count", [2, 16])
@pytest.mark.timeout(180)
def test_any_number_of_finishers_at_once_publish_one_result(made: Plan, tmp_path: Path, count: int) -> None:
    fill_all(made, lambda *_: answered())
    exports = {"atif": {"output_dirpath": str(tmp_path / "atif"), "agent_version": "1"}}
    arguments = {
        "target": str(made.merged.rollouts),
        "shards": [str(shard.rollouts) for shard in made.shards],
        "exports": exports,
    }

    processes = [
        jobs.start(-1, tmp_path / f"log{i}", "finish", {**arguments, "report": str(tmp_path / f"report{i}")})
        for i in range(count)
    ]
    errors = [process.communicate(timeout=150)[1].decode() for process in processes]

    assert [process.returncode for process in processes] == [0] * count, errors
    reports = [json.loads((tmp_path / f"report{i}").read_text()) for i in range(count)]
    assert sorted(report["state"] for report in reports) == ["already_merged"] * (count - 1) + ["merged"]
    assert all(report["exports"]["atif"][0] == "succeeded" for report in reports)
    assert sum(report["exports"]["atif"][1] == "already exported" for report in reports) == count - 1
    assert check_projection(made.merged).state is ProjectionState.VERIFIED
    assert len(made.merged.exports.read_bytes().splitlines()) == 2


def test_a_run_directory_that_was_moved_is_still_verified(made: Plan, tmp_path: Path) -> None:
    fill_all(made, lambda *_: answered())
    finish(made)
    made.directory.rename(tmp_path / "moved")

    check = check_projection(RunArtifacts(tmp_path / "moved" / "rollouts.jsonl"))

    assert check.state is ProjectionState.VERIFIED, check.reason


def test_shards_of_another_benchmark_are_refused(made: Plan) -> None:
    fill_all(made, lambda *_: answered())

    with pytest.raises(RefusedError, match="shards of benchmark 'bench', not of 'other'"):
        merge_when_final(made.merged, made.shards, benchmark="other", retry=RETRY)


def test_without_a_single_prepared_shard_there_is_nothing_to_finish(made: Plan) -> None:
    with pytest.raises(NotFoundError, match="no shard of benchmark 'bench' is prepared"):
        finish(made)

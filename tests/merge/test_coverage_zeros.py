"""Zeros on request: measured, counted and imputed stay apart, and nothing but the report changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collector.artifacts import RunArtifacts
from collector.outcomes import Failure, Omitted
from merge.command import MergeReport, merge_paths
from merge.metrics.counting import Counting
from merge.publication.generation import Reporting
from tests.merge.build import Outcome, Plan, answered, fill_all, plan


def failing(name: str) -> Failure:
    return Failure(failure_class=name, reason="x", terminal=True)


def each_fate(task: int, repeat: int) -> Outcome | list[Outcome]:
    del repeat
    fates: list[Outcome | list[Outcome]] = [
        answered(1.0), answered(0.0), answered(1.0, masked=True), answered(None), Omitted(reason="asked for"),
        failing("listed"), failing("other"), None, [Failure(failure_class="listed", reason="x"), None],
    ]  # fmt: skip
    return fates[task]


@pytest.fixture
def made(tmp_path: Path) -> Plan:
    made = plan(tmp_path / "b", shards=2, tasks=9)
    fill_all(made, each_fate)
    return made


def merged(made: Plan, name: str, counting: Counting) -> MergeReport:
    return merge_paths([made.directory], made.directory / f"{name}.jsonl", allow_partial=True, reporting=Reporting(counting))


def entry_of(report: MergeReport) -> dict[str, Any]:
    return json.loads(RunArtifacts(report.target).aggregate.read_bytes())[0]


@pytest.mark.parametrize(
    ("counting", "mean", "failures", "imputed"),
    [
        pytest.param(Counting(), 1 / 2, 0, 0, id="nothing-asked-for"),
        pytest.param(Counting(("listed",)), 1 / 3, 1, 0, id="one-class"),
        pytest.param(Counting(missing=True), 1 / 4, 0, 2, id="missing"),
        pytest.param(Counting(("listed", "other"), missing=True), 1 / 6, 2, 2, id="all"),
        pytest.param(Counting(("unheard-of",)), 1 / 2, 0, 0, id="a-class-nobody-has"),
    ],
)
def test_only_what_was_asked_for_counts_as_zero(
    made: Plan, counting: Counting, mean: float, failures: int, imputed: int
) -> None:
    """The latest attempt decides: task 8 failed with a listed class, and then its next attempt was interrupted."""
    report = merged(made, "out", counting)

    metrics = entry_of(report)["agent_metrics"]
    assert metrics["mean/reward"] == mean
    assert (metrics["coverage/failures_counted_as_zero"], metrics["coverage/imputed"]) == (failures, imputed)
    assert metrics["coverage/scored"] == 2
    if failures or imputed:
        assert metrics["mean_measured/reward"] == 1 / 2


def test_the_coverage_file_keeps_the_three_numbers_apart(made: Plan) -> None:
    report = merged(made, "out", Counting(("listed",), missing=True))

    coverage = json.loads(RunArtifacts(report.target).coverage.read_bytes())
    assert coverage["counted_as_zero"] == {
        "count_failure_classes_as_zero": ["listed"],
        "count_missing_rollouts_as_zero": True,
        "measured": 2,
        "failures_counted_as_zero": 1,
        "imputed": 2,
        "mean_reward_with_zeros": 1 / 5,
    }
    assert coverage["mean_reward"] == 1 / 2
    assert sum(coverage["states"].values()) == coverage["expected"] == 9


def test_a_switch_changes_neither_rows_nor_states_nor_inputs(made: Plan) -> None:
    before = {path: path.read_bytes() for shard in made.shards for path in shard.rollouts.parent.iterdir()}
    plain, counted = merged(made, "plain", Counting()), merged(made, "counted", Counting(("listed",), missing=True))

    assert plain.target.read_bytes() == counted.target.read_bytes()
    assert plain.coverage == counted.coverage
    assert plain.receipt is not None
    assert counted.receipt is not None
    assert plain.receipt.inputs == counted.receipt.inputs
    assert {path: path.read_bytes() for path in before} == before


def test_a_zero_has_a_place_in_its_task_and_no_value_of_another_field(made: Plan) -> None:
    groups = entry_of(merged(made, "out", Counting(("listed",))))["group_level_metrics"]

    counted = next(group for group in groups if group["_ng_task_index"] == 5)
    assert (counted["num_rollouts"], counted["mean/reward"], counted["mean/output_tokens"]) == (1, 0.0, None)


def test_rollouts_of_missing_shards_are_in_no_inventory_and_are_never_imputed(tmp_path: Path) -> None:
    made = plan(tmp_path / "b", shards=2, tasks=4)
    fill_all(made, lambda *_: answered())

    report = merge_paths(
        [made.shards[0].rollouts], tmp_path / "o.jsonl", allow_partial=True, reporting=Reporting(Counting(missing=True))
    )

    metrics = entry_of(report)["key_metrics"]
    assert (metrics["coverage/imputed"], metrics["coverage/missing"], metrics["mean/reward"]) == (0, 2, 1.0)
    assert (metrics["coverage/reward_lower_bound"], metrics["coverage/reward_upper_bound"]) == (0.5, 1.0)

"""Files of NeMo Gym without a manifest: taken as they are, never vouched for, and refused where nobody can tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collector.artifacts import RunArtifacts
from collector.errors import CorruptArtifactError, IncompleteError, NoTasksError, RefusedError
from collector.outcomes import RolloutState
from merge.command import merge_paths
from merge.metrics.counting import Counting
from merge.publication.generation import Reporting
from merge.publication.projection_check import ProjectionState, check_projection
from orchestrate.cli.aggregate import main as aggregate
from tests.merge.build import answered, fill_all, plan
from tests.merge.legacy_files import asked, failure, lines, row, write


def entries_of(target: Path) -> list[dict[str, Any]]:
    return json.loads(RunArtifacts(target).aggregate.read_bytes())


def coverage_of(target: Path) -> dict[str, Any]:
    return json.loads(RunArtifacts(target).coverage.read_bytes())


def test_rows_failures_and_inventory_become_states_that_add_up(tmp_path: Path) -> None:
    write(
        tmp_path / "r.jsonl",
        [row(0), row(1, reward=0.0, mask_sample=True), row(2, reward=None), row(3, reward=0.5)],
        failures=[failure(3), failure(4, _ng_failure_terminal=True), *[failure(5)] * 3, failure(6)],
        inventory=[asked(task) for task in range(8)],
    )

    report = merge_paths([tmp_path / "r.jsonl"], tmp_path / "out.jsonl", allow_partial=True)

    states = {state.value: count for state, count in report.coverage.states.items() if count}
    assert states == {
        "measured": 2, "masked": 1, "unscored": 1, "failed": 2, "exhausted": 1, "never_dispatched": 1,
    }  # fmt: skip
    assert (report.coverage.expected, report.coverage.attempts, report.coverage.unfinished) == (8, 10, 2)
    assert report.coverage.mean == 0.75
    assert report.coverage.identity_verified is False


def test_without_an_inventory_nobody_knows_what_was_expected_and_every_report_says_so(tmp_path: Path) -> None:
    write(tmp_path / "r.jsonl", [row(0), row(1)])

    report = merge_paths([tmp_path / "r.jsonl"], tmp_path / "out.jsonl")

    coverage = coverage_of(report.target)
    assert (coverage["expected"], coverage["complete"], coverage["coverage_known"]) == (None, None, False)
    assert coverage["shards_without_inventory"] == ["r.jsonl"]
    assert entries_of(report.target)[0]["key_metrics"]["coverage/expected"] is None
    assert any("no inventory beside it" in note for note in report.notes)


def test_one_row_given_twice_counts_once_and_two_different_ones_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", [row(0), row(1)])
    write(tmp_path / "b.jsonl", [row(1), row(2)])

    report = merge_paths([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], tmp_path / "out.jsonl")

    assert report.receipt is not None
    assert report.receipt.output.rows == 3
    write(tmp_path / "b.jsonl", [row(1, reward=0.0), row(2)])
    with pytest.raises(RefusedError, match=r"b.jsonl:1: another row of rollout 1-0 than .*a.jsonl:2"):
        merge_paths([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], tmp_path / "other.jsonl")


def test_a_result_in_one_file_settles_a_failure_in_another(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", [row(0)], failures=[failure(1)], inventory=[asked(0), asked(1)])
    write(tmp_path / "b.jsonl", [row(1, reward=0.0)], failures=[], inventory=[asked(0), asked(1)])

    report = merge_paths([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], tmp_path / "out.jsonl")

    assert (report.coverage.measured, report.coverage.expected, report.coverage.mean) == (2, 2, 0.5)


@pytest.mark.parametrize("tail", [b'{"_ng_task_index": 2, "rew', b"{"], ids=["half-a-row", "one-byte"])
def test_a_torn_last_line_is_passed_over_and_said(tmp_path: Path, tail: bytes) -> None:
    path = write(tmp_path / "r.jsonl", [row(0), row(1)])
    path.write_bytes(path.read_bytes() + tail)

    report = merge_paths([path], tmp_path / "out.jsonl")

    assert report.coverage.measured == 2
    assert report.notes[0] == f"{path}:3: the last line is torn and was passed over."
    assert path.read_bytes().endswith(tail)


def test_a_whole_last_line_without_its_newline_counts_and_gets_one(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", [row(0)])
    path.write_bytes(path.read_bytes().rstrip())

    merge_paths([path], tmp_path / "out.jsonl")

    assert (tmp_path / "out.jsonl").read_bytes() == path.read_bytes() + b"\n"


@pytest.mark.parametrize(
    ("line", "match"),
    [
        (b"no row\n", r"r.jsonl:2: not a result row"),
        (b'{"reward": 1}\n', r"r.jsonl:2: not a result row .*_ng_task_index.* before it stamped them"),
        (b'{"_ng_task_index": 1, "_ng_rollout_index": 0, "reward": "1"}\n', r"r.jsonl:2: not a result row .*reward"),
    ],
    ids=["no-json", "no-identity", "a-text-as-reward"],
)
def test_a_line_that_is_no_row_is_named(tmp_path: Path, line: bytes, match: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(lines([row(0)]) + line + lines([row(2)]))

    with pytest.raises(CorruptArtifactError, match=match):
        merge_paths([path], tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_two_environments_behind_one_agent_may_reuse_a_task_and_each_has_an_entry(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", [row(0, reward=1.0, _ng_environment_server="maths")], inventory=[asked(0)])
    write(tmp_path / "b.jsonl", [row(0, reward=0.0, _ng_environment_server="chess")], inventory=[asked(0)])

    report = merge_paths([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], tmp_path / "out.jsonl")

    means = {entry["agent_ref"]["name"]: entry["agent_metrics"]["mean/reward"] for entry in entries_of(report.target)}
    assert means == {"chess": 0.0, "maths": 1.0}
    assert (report.coverage.measured, report.coverage.expected) == (2, 2)


def test_a_row_that_names_no_agent_has_the_one_of_its_inventory(tmp_path: Path) -> None:
    nameless = {key: value for key, value in row(0).items() if key != "agent_ref"}
    write(tmp_path / "r.jsonl", [nameless], inventory=[asked(0, agent="clicker")])

    report = merge_paths([tmp_path / "r.jsonl"], tmp_path / "out.jsonl")

    assert [entry["agent_ref"]["name"] for entry in entries_of(report.target)] == ["clicker"]


def test_a_rollout_that_no_inventory_has_is_foreign(tmp_path: Path) -> None:
    write(tmp_path / "r.jsonl", [row(0), row(9)], inventory=[asked(0)])

    with pytest.raises(RefusedError, match="rollout 9-0 is in no inventory"):
        merge_paths([tmp_path / "r.jsonl"], tmp_path / "out.jsonl")


def test_unfinished_rollouts_need_to_be_allowed_and_then_the_name_says_partial(tmp_path: Path) -> None:
    write(tmp_path / "r.jsonl", [row(0)], inventory=[asked(0), asked(1)])

    with pytest.raises(IncompleteError, match="1 rollout is unfinished, in: solver"):
        merge_paths([tmp_path / "r.jsonl"], tmp_path / "out.jsonl")
    report = merge_paths([tmp_path / "r.jsonl"], tmp_path / "out.jsonl", allow_partial=True)

    assert report.target == tmp_path / "out.partial.jsonl"
    for name in ("out.partial_coverage.json", "out.partial_merge.json"):
        assert (tmp_path / name).read_text().startswith('{\n  "partial": true')
    assert (tmp_path / "out.partial_aggregate_metrics.json").read_text().startswith('[\n  {\n    "partial": true')


def test_a_published_file_is_checked_against_files_without_a_manifest_too(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", [row(0)], inventory=[asked(0)], failures=[])
    merge_paths([path], tmp_path / "out.jsonl")
    merged = RunArtifacts(tmp_path / "out.jsonl")

    assert check_projection(merged).state is ProjectionState.VERIFIED
    path.write_bytes(lines([row(0, reward=0.0)]))

    assert check_projection(merged).state is ProjectionState.STALE


def test_shards_of_a_run_and_files_without_a_manifest_do_not_mix(tmp_path: Path) -> None:
    made = plan(tmp_path / "b", shards=1, tasks=1)
    fill_all(made, lambda *_: answered())
    write(tmp_path / "r.jsonl", [row(1)])

    with pytest.raises(RefusedError, match=r"r\.jsonl: a file without a manifest, among shards of a run"):
        merge_paths([made.directory, tmp_path / "r.jsonl"], tmp_path / "out.jsonl")


def test_a_glob_passes_over_companions(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.jsonl", [row(0)], failures=[failure(1, _ng_failure_terminal=True)])
    (tmp_path / "in" / "a_reward_profiling.jsonl").write_bytes(b"{}\n")
    (tmp_path / "in" / "rollout_verdicts.jsonl").write_bytes(b"{}\n")
    (tmp_path / "in" / "a_moved.jsonl").write_bytes(b"{}\n")

    report = merge_paths([str(tmp_path / "in" / "*.jsonl")], tmp_path / "out.jsonl")

    assert (report.coverage.measured, report.coverage.states[RolloutState.FAILED]) == (1, 1)


def test_an_empty_file_has_no_tasks(tmp_path: Path) -> None:
    write(tmp_path / "r.jsonl", [])

    with pytest.raises(NoTasksError, match="not a single row"):
        merge_paths([tmp_path / "r.jsonl"], tmp_path / "out.jsonl")


def test_the_last_class_of_a_rollout_decides_whether_it_counts_as_zero(tmp_path: Path) -> None:
    write(
        tmp_path / "r.jsonl",
        [row(0)],
        failures=[
            failure(1, name="x"),
            failure(1, name="y", _ng_failure_terminal=True),
            failure(2, name="x", _ng_failure_terminal=True),
        ],
        inventory=[asked(task) for task in range(3)],
    )
    reporting = Reporting(Counting(("x",)))

    report = merge_paths([tmp_path / "r.jsonl"], tmp_path / "out.jsonl", reporting=reporting)

    metrics = entries_of(report.target)[0]["agent_metrics"]
    assert (metrics["mean/reward"], metrics["mean_measured/reward"]) == (0.5, 1.0)
    assert metrics["coverage/failures_counted_as_zero"] == 1


def test_the_words_that_nemo_gym_takes_are_taken(tmp_path: Path) -> None:
    write(tmp_path / "r.jsonl", [row(0), row(1)], inventory=[asked(0), asked(1)])
    out = tmp_path / "out.jsonl"

    assert aggregate(["--input-glob", str(tmp_path / "r*.jsonl"), "--output", str(out), "--no-health-check"]) == 0

    assert sorted(path.name for path in tmp_path.glob("out*")) == [
        "out.jsonl", "out_aggregate_metrics.json", "out_coverage.json", "out_merge.json", "out_merge.lock",
    ]  # fmt: skip

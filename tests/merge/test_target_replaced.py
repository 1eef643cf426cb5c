"""What a projection may take the place of: its own earlier result, and nothing that is somebody else's."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.artifacts import RunArtifacts
from collector.errors import RefusedError
from merge.command import merge_paths
from tests.merge.build import Plan, answered, fill, fill_all, plan
from tests.merge.targets import refused, snapshot, two_shards


@pytest.fixture
def made(tmp_path: Path) -> Plan:
    return two_shards(tmp_path)


def test_an_earlier_projection_may_be_replaced(made: Plan) -> None:
    first = merge_paths([made.directory], made.merged.rollouts)
    made.merged.rollouts.write_bytes(b"edited by hand\n")

    second = merge_paths([made.directory], made.merged.rollouts)

    assert second.receipt == first.receipt
    assert made.merged.rollouts.stat().st_size == first.receipt.output.size_bytes


def test_the_merged_result_of_another_run_is_not_replaced(made: Plan, tmp_path: Path) -> None:
    other = plan(tmp_path / "other", shards=2, tasks=4)
    fill_all(other, lambda *_: answered())
    merge_paths([other.directory], other.merged.rollouts)

    refused(made, other.merged.rollouts, "the merged result of others")


def test_the_merged_result_of_another_run_behind_a_link_is_not_replaced(made: Plan, tmp_path: Path) -> None:
    other = plan(tmp_path / "other", shards=2, tasks=4)
    fill_all(other, lambda *_: answered())
    merge_paths([other.directory], other.merged.rollouts)
    link = tmp_path / "latest.jsonl"
    link.symlink_to(other.merged.rollouts)

    refused(made, link, "the merged result of others")


def test_a_partial_result_of_another_run_is_not_replaced(made: Plan, tmp_path: Path) -> None:
    other = plan(tmp_path / "other", shards=2, tasks=4)
    fill(other, 0, lambda *_: answered())
    merge_paths([other.shards[0].rollouts], tmp_path / "x.jsonl", allow_partial=True)
    before = snapshot(tmp_path)

    with pytest.raises(RefusedError, match="the merged result of others"):
        merge_paths([made.shards[0].rollouts], tmp_path / "x.jsonl", allow_partial=True)

    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("told", ["{}", "[1]", '[{"path": "\\u0000"}]', '[{"path": "\\ud800"}]', '{"run": 1}', "null"])
def test_a_receipt_that_tells_of_no_run_claims_its_result_all_the_same(made: Plan, tmp_path: Path, told: str) -> None:
    target = tmp_path / "out.jsonl"
    target.write_bytes(b'{"reward": 1}\n')
    target.with_name("out_merge.json").write_text(f'{{"run_id": {told}, "benchmark": {told}, "inputs": {told}}}')

    refused(made, target, "the merged result of others")


def test_a_receipt_of_a_newer_version_still_says_whose_it_is(made: Plan, tmp_path: Path) -> None:
    target = tmp_path / "x.jsonl"
    RunArtifacts(target).receipt.write_text('{"schema_version": 2, "run_id": "another", "benchmark": "bench"}')

    refused(made, target, "run another, benchmark bench")


@pytest.mark.parametrize("with_rows", [True, False], ids=["with-rows", "reports-only"])
def test_the_reports_of_another_run_are_not_replaced(made: Plan, tmp_path: Path, with_rows: bool) -> None:
    """Its coverage says whose they are where there is no receipt: nobody asked for rows, or somebody moved them away."""
    other, target = plan(tmp_path / "other", shards=2, tasks=4), tmp_path / "x.jsonl"
    fill_all(other, lambda *_: answered())
    merge_paths([other.directory], target, with_rows=False)
    before = snapshot(tmp_path)

    with pytest.raises(RefusedError, match=f"the merged result of others .run {other.run_id}, benchmark bench"):
        merge_paths([made.directory], target, with_rows=with_rows)

    assert snapshot(tmp_path) == before


def test_the_reports_of_a_run_are_not_replaced_by_those_of_files_without_a_manifest(made: Plan, tmp_path: Path) -> None:
    legacy, ours, theirs = tmp_path / "a.jsonl", tmp_path / "ours.jsonl", tmp_path / "theirs.jsonl"
    legacy.write_text('{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0, "response": {}}\n')
    merge_paths([made.directory], ours, with_rows=False)
    merge_paths([legacy], theirs, with_rows=False)

    with pytest.raises(RefusedError, match="the merged result of others"):
        merge_paths([legacy], ours, with_rows=False)
    with pytest.raises(RefusedError, match="the merged result of others"):
        merge_paths([made.directory], theirs, with_rows=False)


def test_reports_are_made_again_where_they_were(made: Plan, tmp_path: Path) -> None:
    legacy = tmp_path / "a.jsonl"
    legacy.write_text('{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0, "response": {}}\n')
    for source, target in ((made.directory, tmp_path / "x.jsonl"), (legacy, tmp_path / "y.jsonl")):
        merge_paths([source], target, with_rows=False)
        RunArtifacts(target).aggregate.write_text("[]")

        merge_paths([source], target, with_rows=False)

        assert RunArtifacts(target).aggregate.read_text() != "[]"


def test_a_coverage_of_another_program_says_nothing_of_a_run(made: Plan, tmp_path: Path) -> None:
    target = tmp_path / "x.jsonl"
    RunArtifacts(target).coverage.write_text('{"coverage": 0.5}')

    report = merge_paths([made.directory], target, with_rows=False)

    assert report.coverage.measured == 4


@pytest.mark.parametrize(
    "row",
    [
        pytest.param('{"responses_create_params": {"input": "1+1?"}, "expected_answer": "2"}', id="nemo-gym"),
        pytest.param('{"problem": "1+1?", "solution": 2}', id="of-a-prompt"),
    ],
)
def test_a_dataset_is_no_target(made: Plan, tmp_path: Path, row: str) -> None:
    dataset = tmp_path / "data.jsonl"
    dataset.write_text(f"{row}\n" * 3)

    refused(made, dataset, "the target is a dataset")


@pytest.mark.parametrize(
    "first",
    [
        pytest.param("", id="empty"),
        pytest.param("# sampled in May", id="no-json"),
        pytest.param("[1, 2]", id="no-object"),
        pytest.param('{"version": 2}', id="numbers-only"),
        pytest.param('{"problem": "1+1?", "reward": 1.0}', id="answered"),
        pytest.param("\n" * 98, id="last-of-those-looked-at"),
    ],
)
def test_a_dataset_with_an_odd_first_row_is_no_target(made: Plan, tmp_path: Path, first: str) -> None:
    dataset = tmp_path / "data.jsonl"
    dataset.write_text(f'{first}\n{{"problem": "1+1?", "solution": 2}}\n')

    refused(made, dataset, f"the target is a dataset: its line {first.count(chr(10)) + 2} has no answer")


def test_of_a_large_target_the_first_lines_are_looked_at(made: Plan, tmp_path: Path) -> None:
    target = tmp_path / "x.jsonl"
    row = '{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0}\n'
    target.write_text(row * 100 + '{"problem": "1+1?"}\n')

    merge_paths([made.directory], target)

    assert len(target.read_bytes().splitlines()) == 4


@pytest.mark.parametrize("before", [b"", b"old\n", b'{"_ng_task_index":0,"_ng_rollout_index":0,"reward":1.0}\n{"_ng_'])
def test_what_no_receipt_claims_is_replaced(made: Plan, before: bytes) -> None:
    """It may be what a crash left of an earlier merge."""
    made.merged.rollouts.write_bytes(before)

    merge_paths([made.directory], made.merged.rollouts)

    assert len(made.merged.rollouts.read_bytes().splitlines()) == 4


def test_files_without_a_manifest_are_merged_again_where_they_were(tmp_path: Path) -> None:
    source, other, target = tmp_path / "a.jsonl", tmp_path / "b.jsonl", tmp_path / "out" / "merged.jsonl"
    for path in (source, other):
        path.write_text('{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0, "response": {}}\n')
    merge_paths([source], target)
    with source.open("a") as file:
        file.write('{"_ng_task_index": 1, "_ng_rollout_index": 0, "reward": 0.0, "response": {}}\n')

    merge_paths([source], target)

    assert len(target.read_bytes().splitlines()) == 2
    with pytest.raises(RefusedError, match="the merged result of others"):
        merge_paths([other], target)


@pytest.mark.parametrize("tag", ["_health.json", "_verdicts.jsonl"])
def test_an_older_health_report_beside_a_target_refuses_nothing(made: Plan, tag: str) -> None:
    report = made.merged.companion(tag)
    report.write_bytes(b"{}\n")

    merge_paths([made.directory], made.merged.rollouts)

    assert report.read_bytes() == b"{}\n"

"""Where a projection may not be written: each refusal leaves every file as it was."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from collector.artifacts import RunArtifacts
from collector.errors import RefusedError
from merge.command import merge_paths
from tests.merge.build import Plan, answered, fill, fill_all, plan


@pytest.fixture
def made(tmp_path: Path) -> Plan:
    made = plan(tmp_path / "b", shards=2, tasks=4)
    fill_all(made, lambda *_: answered())
    return made


def snapshot(root: Path) -> dict[str, tuple[str, int]]:
    """Digest or link target, and inode, of everything below ``root``."""
    found: dict[str, tuple[str, int]] = {}
    for path in sorted(root.rglob("*")):
        info = path.lstat()
        if path.is_symlink():
            what = str(path.readlink())
        else:
            what = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory"
        found[str(path)] = (what, info.st_ino)
    return found


def refused(made: Plan, target: Path, match: str) -> None:
    before = snapshot(made.directory.parent)
    with pytest.raises(RefusedError, match=match) as caught:
        merge_paths([made.directory], target)
    assert caught.value.exit_code == 4
    assert snapshot(made.directory.parent) == before


def as_file(path: Path) -> None:
    path.write_bytes(b"somebody's history\n")


def as_empty_file(path: Path) -> None:
    path.touch()


def as_directory(path: Path) -> None:
    path.mkdir()


def as_dangling_link(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere")


def as_link(path: Path) -> None:
    real = path.with_name("real-history")
    real.write_bytes(b"history\n")
    path.symlink_to(real)


FORMS = [as_file, as_empty_file, as_directory, as_dangling_link, as_link]
COMPANIONS = ["_manifest.json", "_attempts.jsonl", "_materialized_inputs.jsonl", "_failures.jsonl"]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
@pytest.mark.parametrize("tag", COMPANIONS)
@pytest.mark.parametrize("exists", [pytest.param(True, id="target-exists"), pytest.param(False, id="target-is-new")])
def test_one_recovery_companion_in_any_form_is_enough_to_refuse(
    made: Plan, tmp_path: Path, tag: str, form: Callable[[Path], None], exists: bool
) -> None:
    target = tmp_path / "combined.jsonl"
    if exists:
        target.write_bytes(b"results\n")
    form(RunArtifacts(target).companion(tag))

    refused(made, target, f"belongs to a run: combined{tag}")


@pytest.mark.parametrize("tag", COMPANIONS)
def test_a_companion_in_another_case_refuses_too(made: Plan, tmp_path: Path, tag: str) -> None:
    target = tmp_path / "Combined.jsonl"
    (tmp_path / f"cOMBINED{tag}").write_bytes(b"")

    refused(made, target, f"belongs to a run: cOMBINED{tag}")


def test_a_companion_beside_the_file_behind_a_link_refuses_too(made: Plan, tmp_path: Path) -> None:
    real = tmp_path / "run" / "real.jsonl"
    real.parent.mkdir()
    real.write_bytes(b"results\n")
    (real.parent / "real_attempts.jsonl").write_bytes(b"")
    link = tmp_path / "out.jsonl"
    link.symlink_to(real)

    refused(made, link, "belongs to a run: real_attempts.jsonl")


def input_itself(made: Plan, tmp_path: Path) -> Path:
    return made.shards[1].rollouts


def input_by_a_detour(made: Plan, tmp_path: Path) -> Path:
    return made.directory / "." / "shards" / ".." / "shards" / "1-of-2" / "rollouts.jsonl"


def input_in_another_case(made: Plan, tmp_path: Path) -> Path:
    return made.shards[1].rollouts.with_name("Rollouts.jsonl")


def link_to_an_input(made: Plan, tmp_path: Path) -> Path:
    (tmp_path / "x.jsonl").symlink_to(made.shards[0].rollouts)
    return tmp_path / "x.jsonl"


def hard_link_to_an_input(made: Plan, tmp_path: Path) -> Path:
    os.link(made.shards[0].rollouts, tmp_path / "x.jsonl")
    return tmp_path / "x.jsonl"


def journal_of_an_input(made: Plan, tmp_path: Path) -> Path:
    return made.shards[0].journal


def link_to_a_journal(made: Plan, tmp_path: Path) -> Path:
    (tmp_path / "x.jsonl").symlink_to(made.shards[0].journal)
    return tmp_path / "x.jsonl"


def hard_link_to_an_inventory(made: Plan, tmp_path: Path) -> Path:
    os.link(made.shards[0].inventory, tmp_path / "x.jsonl")
    return tmp_path / "x.jsonl"


def lock_of_an_input(made: Plan, tmp_path: Path) -> Path:
    return made.shards[0].lock


def new_file_in_a_shard_directory(made: Plan, tmp_path: Path) -> Path:
    return made.shards[0].rollouts.with_name("merged.jsonl")


def file_below_a_shard_directory(made: Plan, tmp_path: Path) -> Path:
    return made.shards[0].rollouts.parent / "deep" / "merged.jsonl"


def a_directory(made: Plan, tmp_path: Path) -> Path:
    (tmp_path / "folder.jsonl").mkdir()
    return tmp_path / "folder.jsonl"


def a_dangling_link(made: Plan, tmp_path: Path) -> Path:
    (tmp_path / "x.jsonl").symlink_to(tmp_path / "nowhere.jsonl")
    return tmp_path / "x.jsonl"


def a_pipe(made: Plan, tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "x.jsonl")
    return tmp_path / "x.jsonl"


def a_parent_that_is_a_file(made: Plan, tmp_path: Path) -> Path:
    (tmp_path / "blocked").write_bytes(b"")
    return tmp_path / "blocked" / "x.jsonl"


@pytest.mark.parametrize(
    ("place", "match"),
    [
        (input_itself, "the target"),
        (input_by_a_detour, "the target"),
        (input_in_another_case, "the target"),
        (link_to_an_input, "the target"),
        (hard_link_to_an_input, "the target is an input"),
        (journal_of_an_input, "companion of an input"),
        (link_to_a_journal, "companion of an input"),
        (hard_link_to_an_inventory, "companion of an input"),
        (lock_of_an_input, "companion of an input"),
        (new_file_in_a_shard_directory, "inside the directory of a shard"),
        (file_below_a_shard_directory, "inside the directory of a shard"),
        (a_directory, "is a directory"),
        (a_dangling_link, "link to nothing"),
        (a_parent_that_is_a_file, "is no directory"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_target_that_would_cost_somebody_a_file_is_refused(
    made: Plan, tmp_path: Path, place: Callable[[Plan, Path], Path], match: str
) -> None:
    target = place(made, tmp_path)

    refused(made, target, match)


def test_a_pipe_is_no_target(made: Plan, tmp_path: Path) -> None:
    target = a_pipe(made, tmp_path)

    with pytest.raises(RefusedError, match="not a regular file"):
        merge_paths([made.directory], target)


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


def test_a_companion_of_another_run_is_no_target(made: Plan, tmp_path: Path) -> None:
    other = plan(tmp_path / "other", shards=1, tasks=4)
    fill_all(other, lambda *_: answered())
    journal = other.shards[0].journal.rename(tmp_path / "saved_attempts.jsonl")

    refused(made, journal, "called like a companion of a run")


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


def test_a_new_folder_is_made_for_a_target(made: Plan, tmp_path: Path) -> None:
    merge_paths([made.directory], tmp_path / "new" / "folder" / "merged.jsonl")

    assert (tmp_path / "new" / "folder" / "merged_merge.json").is_file()


@pytest.mark.parametrize("tag", ["_health.json", "_verdicts.jsonl"])
def test_the_health_report_of_an_input_is_no_target(made: Plan, tag: str) -> None:
    report = made.shards[0].companion(tag)
    report.write_bytes(b"{}\n")

    refused(made, report, f"{report.name}, a companion of an input")


@pytest.mark.parametrize("tag", ["_health.json", "_verdicts.jsonl"])
def test_an_older_health_report_beside_a_target_refuses_nothing(made: Plan, tag: str) -> None:
    report = made.merged.companion(tag)
    report.write_bytes(b"{}\n")

    merge_paths([made.directory], made.merged.rollouts)

    assert report.read_bytes() == b"{}\n"

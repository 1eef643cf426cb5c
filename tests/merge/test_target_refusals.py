"""Where a projection may not be written: each refusal leaves every file as it was."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from collector.artifacts import RunArtifacts
from collector.errors import RefusedError
from merge.command import merge_paths
from tests.merge.build import Plan, answered, fill_all, plan
from tests.merge.targets import refused, two_shards


@pytest.fixture
def made(tmp_path: Path) -> Plan:
    return two_shards(tmp_path)


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


def test_a_companion_of_another_run_is_no_target(made: Plan, tmp_path: Path) -> None:
    other = plan(tmp_path / "other", shards=1, tasks=4)
    fill_all(other, lambda *_: answered())
    journal = other.shards[0].journal.rename(tmp_path / "saved_attempts.jsonl")

    refused(made, journal, "called like a companion of a run")


def test_a_new_folder_is_made_for_a_target(made: Plan, tmp_path: Path) -> None:
    merge_paths([made.directory], tmp_path / "new" / "folder" / "merged.jsonl")

    assert (tmp_path / "new" / "folder" / "merged_merge.json").is_file()


@pytest.mark.parametrize("tag", ["_health.json", "_verdicts.jsonl"])
def test_the_health_report_of_an_input_is_no_target(made: Plan, tag: str) -> None:
    report = made.shards[0].companion(tag)
    report.write_bytes(b"{}\n")

    refused(made, report, f"{report.name}, a companion of an input")

"""The table of expected outcomes, numbers 34 to 41, and of 33 what a merge sees of it: targets, aliases, coverage and zeros."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from collector.artifacts import RunArtifacts
from collector.errors import RefusedError
from collector.outcomes import Failure
from merge.command import merge_paths
from merge.metrics.counting import Counting
from merge.publication.generation import Reporting
from tests.merge.build import Plan, answered, fill_all, plan
from tests.merge.legacy_files import asked, failure, row, write

CASES = pytest.mark.parametrize


@pytest.fixture
def made(tmp_path: Path) -> Plan:
    made = plan(tmp_path / "b", shards=2, tasks=4)
    fill_all(made, lambda task, _: answered(float(task % 2)))
    return made


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def metrics_of(target: Path) -> dict[str, Any]:
    return json.loads(RunArtifacts(target).aggregate.read_bytes())[0]["agent_metrics"]


@CASES("exists", [pytest.param(True, id="n34-with-results"), pytest.param(False, id="n34-name-only")])
def test_a_target_with_a_manifest_beside_it_is_refused_and_stays(made: Plan, tmp_path: Path, exists: bool) -> None:
    target = tmp_path / "combined.jsonl"
    (tmp_path / "combined_manifest.json").write_bytes(b"{}")
    if exists:
        target.write_bytes(b"results of another run\n")
    before = content_of(tmp_path)

    with pytest.raises(RefusedError, match=r"combined_manifest\.json beside it"):
        merge_paths([made.directory], target)

    assert content_of(tmp_path) == before


@CASES("is_link", [pytest.param(False, id="n35-input"), pytest.param(True, id="n35-link-to-input")])
def test_a_target_that_is_an_input_is_refused_before_anything_changes(made: Plan, tmp_path: Path, is_link: bool) -> None:
    target = made.shards[0].rollouts
    if is_link:
        target = tmp_path / "out.jsonl"
        target.symlink_to(made.shards[0].rollouts)
    before = content_of(tmp_path)

    with pytest.raises(RefusedError):
        merge_paths([made.directory], target)

    assert content_of(tmp_path) == before


def test_n36_a_linked_target_stays_a_link_and_keeps_its_mode(made: Plan, tmp_path: Path) -> None:
    real = tmp_path / "elsewhere" / "real.jsonl"
    real.parent.mkdir()
    real.write_bytes(b"old\n")
    real.chmod(0o640)
    link = tmp_path / "out.jsonl"
    link.symlink_to(real)
    inode = real.stat().st_ino

    merge_paths([made.directory], link)

    assert link.is_symlink()
    assert (stat.S_IMODE(real.stat().st_mode), real.read_bytes().count(b"\n")) == (0o640, 4)
    assert real.stat().st_ino != inode


@CASES("how", [pytest.param("symlink", id="n37-symlink"), pytest.param("hard-link", id="n37-hard-link")])
def test_one_run_given_twice_counts_once(made: Plan, tmp_path: Path, how: str) -> None:
    alias = tmp_path / "alias.jsonl"
    if how == "symlink":
        alias.symlink_to(made.shards[0].rollouts)
    else:
        os.link(made.shards[0].rollouts, alias)

    report = merge_paths([alias, made.directory, made.shards[0].rollouts], tmp_path / "out.jsonl")

    assert (report.coverage.measured, report.coverage.expected) == (4, 4)


def test_n38_two_environment_servers_may_reuse_a_task(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", [row(0, reward=1.0, _ng_environment_server="one")])
    write(tmp_path / "b.jsonl", [row(0, reward=0.0, _ng_environment_server="two")])

    report = merge_paths([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], tmp_path / "out.jsonl")

    assert (report.coverage.measured, report.coverage.mean) == (2, 0.5)


@CASES("is_legacy", [pytest.param(False, id="n39-run"), pytest.param(True, id="n39-files-without-manifest")])
def test_a_recorded_failure_of_an_uncounted_class_is_not_imputed(tmp_path: Path, is_legacy: bool) -> None:
    if is_legacy:
        inventory = [asked(task) for task in range(3)]
        source = write(tmp_path / "r.jsonl", [row(0)], failures=[failure(1)], inventory=inventory)
    else:
        made = plan(tmp_path / "b", shards=1, tasks=3)
        fates = [answered(1.0), Failure(failure_class="agent_run_error", reason="x"), None]
        fill_all(made, lambda task, _: fates[task])
        source = made.directory
    reporting = Reporting(Counting(("another",), missing=True))

    report = merge_paths([source], tmp_path / "out.jsonl", allow_partial=True, reporting=reporting)

    metrics = metrics_of(report.target)
    assert (metrics["coverage/imputed"], metrics["coverage/failures_counted_as_zero"], metrics["mean/reward"]) == (1, 0, 0.5)


@CASES("is_legacy", [pytest.param(False, id="n40-run"), pytest.param(True, id="n40-files-without-manifest")])
def test_the_latest_failure_decides_whether_a_class_counts(tmp_path: Path, is_legacy: bool) -> None:
    if is_legacy:
        failures = [failure(1, name="x"), failure(1, name="y", _ng_failure_terminal=True)]
        source = write(tmp_path / "r.jsonl", [row(0)], failures=failures, inventory=[asked(0), asked(1)])
    else:
        made = plan(tmp_path / "b", shards=1, tasks=2)
        both = [Failure(failure_class="x", reason="r"), Failure(failure_class="y", reason="r", terminal=True)]
        fill_all(made, lambda task, _: answered(1.0) if task == 0 else both)
        source = made.directory

    report = merge_paths([source], tmp_path / "out.jsonl", reporting=Reporting(Counting(("x",))))

    metrics = metrics_of(report.target)
    assert (metrics["coverage/failures_counted_as_zero"], metrics["mean/reward"]) == (0, 1.0)


def test_n41_all_masked_leaves_coverage_and_no_mean(tmp_path: Path) -> None:
    made = plan(tmp_path / "b", shards=2, tasks=4)
    fill_all(made, lambda *_: answered(1.0, masked=True))

    report = merge_paths([made.directory], tmp_path / "out.jsonl")

    metrics = metrics_of(report.target)
    assert {name.partition("/")[0] for name in metrics} == {"coverage"}
    assert (metrics["coverage/masked_rollouts"], metrics["coverage/fully_masked_tasks"]) == (4, 4)


def test_n33_a_torn_append_of_a_foreign_program_leaves_the_projection_untouched(made: Plan, tmp_path: Path) -> None:
    """The migration itself is the collector's; a merge reads a sidecar that two programs wrote and takes nothing it cannot tell."""
    merge_paths([made.directory], tmp_path / "out.jsonl")
    before = content_of(tmp_path)
    with made.shards[0].failures.open("ab") as file:
        file.write(b'{"_ng_task_index": 0, "_ng_rollout_index": 0, "_ng_run_id": "another"}\n')

    with pytest.raises(RefusedError):
        merge_paths([made.directory], tmp_path / "out.jsonl")

    after = content_of(tmp_path)
    assert {path for path in before if before[path] != after[path]} == {str(made.shards[0].failures)}

"""Cancelling a run on this machine: by process group, nothing recorded lost, and going on afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import filelock
import pytest

from orchestrate.processes import started_at
from tests.orchestrate.project import Project
from tests.support.processes import wait_for

pytestmark = pytest.mark.timeout(120)


def pids(project: Project) -> dict[int, int]:
    return {shard["index"]: int(shard["job_id"].split(":")[1]) for shard in project.status()["benchmarks"][0]["shards"]}


def slow(project: Project, *, tasks: int = 80, shards: int = 2, delay: float = 0.5) -> None:
    project.config["services"]["policy"] = project.service(delay=delay)
    project.benchmark("math", tasks=tasks, shards=shards, num_samples_in_parallel=1)
    project.submit()
    wait_for(lambda: len(project.requests()) >= 3, 60)


def test_cancelled_jobs_are_gone_and_a_submit_goes_on(project: Project) -> None:
    # Long enough for a busy machine to start the command that cancels.
    slow(project, tasks=24, delay=2)
    before = pids(project)

    done = project.gym("cancel")

    assert done.returncode == 0, done.stderr
    assert "2 jobs ended" in done.stdout
    assert all(started_at(pid) is None for pid in before.values())
    recorded = project.status()["benchmarks"][0]["measured"]
    assert "0.75 (24/24)" in project.submit("--wait", timeout_s=100)
    # What was recorded before was not asked again; one in flight in each shard may have been.
    assert len(project.requests()) <= 24 + 2
    assert recorded >= 1


def test_one_cancelled_shard_leaves_the_other_at_work(project: Project) -> None:
    slow(project)
    before = pids(project)

    done = project.gym("cancel", "--shard", "1", "--json")

    assert [job["shard"] for job in json.loads(done.stdout)["stopped"]] == [1]
    assert started_at(before[1]) is None
    assert started_at(before[0]) is not None
    project.gym("cancel")


def test_finish_merges_what_is_there_and_calls_it_partial(project: Project) -> None:
    slow(project)

    done = project.gym("cancel", "--finish")

    assert done.returncode == 0, done.stderr
    assert "(partial)" in done.stdout
    merged = (project.run_dir / "math" / "rollouts.partial.jsonl").read_text().splitlines()
    assert not (project.run_dir / "math" / "rollouts.jsonl").exists()
    assert len(merged) == project.status()["benchmarks"][0]["measured"] > 0
    benchmark = project.status()["benchmarks"][0]
    assert benchmark["merged_partially"] is True
    assert benchmark["merged"] == str(project.run_dir / "math" / "rollouts.partial.jsonl")


def test_finish_exports_what_may_be_partial_and_names_what_may_not(project: Project) -> None:
    project.config["export"] = {"csv": {"allow_partial": True}, "atif": {"agent_version": "1.0.0"}}
    slow(project)

    done = project.gym("cancel", "--finish")

    assert done.returncode == 0, done.stderr
    assert "Export csv: " in done.stderr
    assert "Export atif: not made of a partial result; allow_partial: true in its settings would" in done.stderr
    (table,) = project.run_dir.glob("math/*_table.csv")
    assert table.read_text().startswith("_ng_task_index")
    assert not list(project.run_dir.glob("math/*_atif"))


def test_a_finished_partial_result_is_replaced_by_the_whole_one(project: Project) -> None:
    slow(project, tasks=24)
    project.gym("cancel", "--finish")

    said = project.submit("--wait", timeout_s=100)

    assert "0.75 (24/24)" in said
    assert project.status()["benchmarks"][0]["merged_partially"] is False
    assert not list((project.run_dir / "math").glob("rollouts.partial*"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--benchmark", "nope"], "There are: math", id="unknown-benchmark"),
        pytest.param(["--shard", "7"], "They are 0 to 0", id="unknown-shard"),
    ],
)
def test_what_the_run_does_not_have_is_told(project: Project, arguments: list[str], said: str) -> None:
    project.benchmark("math", tasks=2)
    project.submit("--wait", timeout_s=100)

    done = project.gym("cancel", *arguments)

    assert done.returncode == 3
    assert said in done.stderr


def test_nothing_is_cancelled_while_another_command_submits(project: Project) -> None:
    slow(project)

    with filelock.FileLock(project.run_dir / "submit.lock"):
        done = project.gym("cancel")

    assert done.returncode == 4
    assert "another command is submitting" in done.stderr
    assert all(started_at(pid) is not None for pid in pids(project).values())
    project.gym("cancel")


def test_jobs_of_another_machine_are_not_touched(project: Project, tmp_path: Path) -> None:
    slow(project)
    path = project.run_dir / "submissions.jsonl"
    original = path.read_text()
    own = next(iter(json.loads(original.splitlines()[1])["jobs"].values())).split(":")[0]
    path.write_text(original.replace(f'"{own}:', '"elsewhere:'))

    done = project.gym("cancel")

    assert done.returncode == 5
    assert "started on elsewhere" in done.stderr
    path.write_text(original)
    assert all(started_at(pid) is not None for pid in pids(project).values())
    project.gym("cancel")

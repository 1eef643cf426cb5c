"""Shards of several benchmarks in one job: services start once, each benchmark ends as if it had a job of its own."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from orchestrate.runs.directory import RunDir
from orchestrate.runs.submissions import Submission, read_submissions
from tests.orchestrate.fake_slurm import ACCEPT, FakeSlurm
from tests.orchestrate.project import Project
from tests.support.processes import wait_for

pytestmark = pytest.mark.timeout(150)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path / "user", {"type": "local", "max_concurrent": 2})
    project.config["job"]["pack"] = 3
    return project


def three(project: Project, **marks: str) -> None:
    project.benchmark("a", tasks=4, shards=2, marks=marks.get("a", ""))
    project.benchmark("b", tasks=3, marks=marks.get("b", ""))
    project.benchmark("c", tasks=2, marks=marks.get("c", ""))


def submissions(project: Project) -> list[Submission]:
    return read_submissions(RunDir(project.run_dir).submissions)


def job_ids(project: Project) -> set[str]:
    return {job_id for submission in submissions(project) for job_id in submission.jobs.values()}


def reports(project: Project) -> dict[str, dict[str, Any]]:
    return {benchmark["name"]: benchmark for benchmark in project.status()["benchmarks"]}


def asked(project: Project) -> Counter[str]:
    return Counter(str(request["task"]) for request in project.requests())


def test_each_benchmark_is_merged_and_services_start_once_a_job(project: Project) -> None:
    three(project)

    project.submit("--wait", timeout_s=120)

    assert {name: (b["measured"], b["expected"], bool(b["merged"])) for name, b in reports(project).items()} == {
        "a": (4, 4, True), "b": (3, 3, True), "c": (2, 2, True),
    }  # fmt: skip
    assert len(job_ids(project)) == 2
    # The last job has one shard, and its log is that shard's.
    assert sorted(path.parts[-3] for path in project.run_dir.glob("*/logs/policy-*.log")) == ["c", "packs"]
    assert set(asked(project).values()) == {1}


def test_the_plan_shows_which_shards_share_a_job(project: Project) -> None:
    three(project)

    done = project.gym("submit", str(project.write()), "--dry-run")

    assert done.returncode == 0, done.stderr
    assert "packed     2 jobs in all, each fills up to 3 shards, one after the other" in done.stdout
    assert "2 packed jobs: a shard 0; a shard 1; b shard 0 | c shard 0" in done.stdout
    assert not project.runs.exists()


def test_what_fails_in_one_benchmark_stops_no_other(project: Project) -> None:
    three(project, a="[[mode: 400]]")

    said = project.submit("--wait", code=7, timeout_s=120)

    found = reports(project)
    assert (found["a"]["measured"], found["b"]["measured"], found["c"]["measured"]) == (0, 3, 2)
    assert all(benchmark["merged"] for benchmark in found.values())
    assert "a: a shard 0 of 2: nothing was measured" in said
    assert "b: b shard" not in said


def test_a_killed_job_is_resumed_where_it_was(project: Project) -> None:
    project.config["job"]["pack"] = 4
    three(project, b="[[delay: 2]]")
    project.config["driver"]["benchmarks"]["b"]["run"]["num_samples_in_parallel"] = 1
    project.submit()
    wait_for(lambda: asked(project)["b-1"], 60)
    (job_id,) = job_ids(project)
    os.killpg(int(job_id.split(":")[-2]), signal.SIGKILL)
    wait_for(lambda: all(s["job_state"] == "GONE" for b in reports(project).values() for s in b["shards"]), 30)

    project.submit("--wait", timeout_s=120)

    assert {name: b["measured"] for name, b in reports(project).items()} == {"a": 4, "b": 3, "c": 2}
    counts = asked(project)
    assert {task: counts[task] for task in counts if counts[task] > 1} == {"b-1": 2}


def test_shards_of_a_job_are_worked_on_so_many_at_a_time(project: Project) -> None:
    project.config["job"] |= {"pack": 4, "pack_at_once": 2}
    three(project, a="[[delay: 1]]")

    project.submit("--wait", timeout_s=120)

    log = next(project.run_dir.glob("packs/logs/job-*.log")).read_text()
    collecting = [line.split(" ", 1)[1] for line in log.splitlines() if line.endswith(": collecting")]
    first_end = log.index("rollouts completed")
    assert collecting[:2] == ["a shard 0 of 2: collecting", "a shard 1 of 2: collecting"]
    assert log.index("a shard 1 of 2: collecting") < first_end
    assert set(asked(project).values()) == {1}


def test_a_packed_job_is_not_cancelled_for_one_benchmark(project: Project) -> None:
    project.config["job"]["pack"] = 4
    three(project, a="[[mode: silence]]")
    project.submit()
    # Of whichever shard of a is the job's first.
    wait_for(lambda: asked(project), 60)

    refused = project.gym("cancel", "--benchmark", "b")
    cancelled = project.gym("cancel", timeout_s=100)

    assert refused.returncode == 4
    assert "also fills a shard 0, a shard 1, c shard 0. Cancel the whole run" in refused.stderr
    assert cancelled.returncode == 0, cancelled.stderr
    assert "1 job ended." in cancelled.stdout
    assert cancelled.stderr == "cancelling 1 job\n"


def test_the_log_of_a_packed_job_is_shown_once(project: Project) -> None:
    project.config["job"]["pack"] = 4
    three(project)
    project.submit("--wait", timeout_s=120)

    done = project.gym("logs")
    of_one = project.gym("logs", "--benchmark", "c", "--shard", "0")

    assert done.stdout.count("==> a shard 0 and 3 more: ") == 1
    assert "c shard 0 of 1: 2 of 2 rollouts completed" in of_one.stdout


def test_a_packed_submission_whose_answer_was_lost_is_found_whole(tmp_path: Path) -> None:
    fake = FakeSlurm(tmp_path / "bin")
    fake.program("sbatch", f"{ACCEPT}\nexit 1")
    project = Project(tmp_path / "user", {"type": "slurm", "walltime": "1:00:00"})
    project.config["job"]["pack"] = 3
    three(project)

    done = project.gym("submit", str(project.write()), env=fake.env)
    again = project.gym("submit", str(project.write()), env=fake.env)

    assert (done.returncode, again.returncode) == (0, 0), done.stderr + again.stderr
    assert len(fake.calls("sbatch")) == 1
    found = {s.prepared.benchmark: dict(s.jobs) for s in submissions(project) if not s.is_finisher}
    assert found == {"a": {0: "101_0", 1: "101_0"}, "b": {0: "101_0"}, "c": {0: "101_1"}}
    record = json.loads((project.run_dir / "gym-job.json").read_text())
    assert [job["job_id"] for job in record["benchmarks"]] == ["101", "101", "101"]


def test_only_what_is_unfinished_is_packed_again(tmp_path: Path) -> None:
    fake = FakeSlurm(tmp_path / "bin")
    project = Project(tmp_path / "user", {"type": "local", "max_concurrent": 2})
    project.config["job"]["pack"] = 3
    three(project)
    project.submit("--wait", timeout_s=120)
    project.config["compute"] = {"here": {"type": "slurm", "walltime": "1:00:00"}}

    done = project.gym("submit", str(project.write()), env=fake.env)

    assert done.returncode == 0, done.stderr
    assert fake.calls("sbatch") == []

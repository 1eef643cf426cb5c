"""Packed jobs on a real scheduler: preempted, requeued, resumed, and accounted to each benchmark once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from orchestrate.runs.directory import RunDir
from orchestrate.runs.submissions import read_submissions
from tests.orchestrate.project import Project
from tests.support.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]


def two(tmp_path: Path, cluster: SlurmCluster) -> Project:
    """Two benchmarks in one job; the second is slow."""
    project = Project(tmp_path / "user", {"type": "slurm", "partition": "batch", "walltime": "10m", "mem": "200M"})
    project.config["job"]["pack"] = 2
    project.benchmark("first", tasks=4)
    project.benchmark("second", tasks=8, marks="[[delay: 3]]", num_samples_in_parallel=2)
    project.submit()
    cluster.wait_for(lambda: len(asked(project)) >= 6, 60)
    return project


def asked(project: Project) -> Counter[str]:
    return Counter(str(request["task"]) for request in project.requests())


def reports(project: Project) -> dict[str, dict[str, Any]]:
    return {benchmark["name"]: benchmark for benchmark in project.status()["benchmarks"]}


def the_job(project: Project) -> str:
    (job_id,) = {shard["job_id"] for benchmark in reports(project).values() for shard in benchmark["shards"]}
    return job_id


def test_a_preempted_packed_job_resumes_what_is_unfinished_and_is_accounted_once(
    tmp_path: Path, slurm_accounting: SlurmCluster
) -> None:
    project = two(tmp_path, slurm_accounting)
    job_id = the_job(project)
    with slurm_accounting.preempt(4):
        slurm_accounting.wait_for(lambda: slurm_accounting.state(job_id) == "PENDING")
    slurm_accounting.start_now(job_id)

    assert project.gym("watch", "--every", "1", timeout_s=120).returncode == 0

    found = reports(project)
    assert {name: (b["measured"], b["shards"][0]["sessions"]) for name, b in found.items()} == {
        "first": (4, 1),
        "second": (8, 2),
    }
    counts = asked(project)
    assert all(counts[f"first-{task}"] == 1 for task in range(4))
    # Only what was in flight at the preemption was asked again.
    assert sum(counts[f"second-{task}"] - 1 for task in range(8)) <= 2

    ids = {job for s in read_submissions(RunDir(project.run_dir).submissions) for job in s.jobs.values()}

    def booked() -> int:
        fields = ("--format=JobID,ElapsedRaw", f"--jobs={','.join(ids)}")
        return sum(
            int(line.split("|")[1])
            for line in slurm_accounting.run("sacct", "-n", "-P", "-X", "--duplicates", *fields).splitlines()
        )

    def accounted() -> tuple[list[float], int] | None:
        whole = booked()
        waste = json.loads(project.gym("status", "--waste", "--json").stdout)
        found = [benchmark["job_s"] for benchmark in waste["benchmarks"]]
        # Until the accounting has a job's end, its seconds grow from one question to the next.
        return (found, whole) if min(found) > 0 and whole == booked() and sum(found) == pytest.approx(whole, abs=0.01) else None

    seconds, whole = slurm_accounting.wait_for(accounted, 60) or ([], 0)
    assert sum(seconds) == pytest.approx(whole, abs=0.01)
    assert all(0 < own < whole for own in seconds)


def test_the_finisher_of_each_benchmark_follows_its_own_packed_jobs(tmp_path: Path, slurm: SlurmCluster) -> None:
    project = Project(tmp_path / "user", {"type": "slurm", "partition": "batch", "walltime": "10m", "mem": "200M"})
    project.config["job"]["pack"] = 2
    for name in ("a", "b", "c"):
        project.benchmark(name, tasks=2)

    project.submit("--wait", timeout_s=150)

    assert all(b["merged"] and b["measured"] == 2 for b in reports(project).values())
    assert {s["job_id"] for b in reports(project).values() for s in b["shards"]} == {
        f"{reports(project)['a']['shards'][0]['job_id'].partition('_')[0]}_{position}" for position in (0, 1)
    }

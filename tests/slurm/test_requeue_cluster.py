"""Lost nodes, preemption without an end and failures that repeat themselves, on a real scheduler."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.orchestrate.project import Project
from tests.support.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]


@pytest.fixture
def project(tmp_path: Path, slurm: SlurmCluster) -> Project:
    return Project(tmp_path / "user", {"type": "slurm", "walltime": "10m", "mem": "200M"})


def job_id(project: Project) -> str:
    return project.status()["benchmarks"][0]["shards"][0]["job_id"]


def finished(project: Project) -> bool:
    return all(shard["final"] for shard in project.status()["benchmarks"][0]["shards"])


def test_a_shard_whose_node_is_lost_goes_on_elsewhere(project: Project, slurm: SlurmCluster) -> None:
    project.config["services"]["policy"] = project.service(delay=2)
    project.benchmark("math", tasks=12, num_samples_in_parallel=2)
    project.submit()
    slurm.wait_for(lambda: len(project.requests()) >= 4, 60)
    job = job_id(project)
    node = slurm.job(job)["NodeList"]

    slurm.set_node(node, "down")
    slurm.wait_for(lambda: slurm.state(job) == "PENDING", 60)
    slurm.set_node(node, "resume")
    slurm.start_now(job)
    slurm.wait_for(lambda: finished(project), 90)

    report = project.status()["benchmarks"][0]
    assert (report["measured"], report["shards"][0]["sessions"]) == (12, 2)
    repeated = [task for task, count in Counter(request["task"] for request in project.requests()).items() if count > 1]
    assert len(repeated) <= 2


def test_a_job_beyond_its_bound_ends_incomplete_and_asks_nobody(project: Project, slurm: SlurmCluster) -> None:
    project.config["services"]["policy"] = project.service(delay=2)
    project.benchmark("math", tasks=12, num_samples_in_parallel=2)
    project.config["driver"]["benchmarks"]["math"]["requeue"] = {"max_requeues": 0}
    project.submit()
    slurm.wait_for(lambda: len(project.requests()) >= 4, 60)
    job = job_id(project)

    with slurm.preempt(4):
        slurm.wait_for(lambda: slurm.state(job) == "PENDING")
        asked = len(project.requests())
    slurm.start_now(job)
    slurm.wait_for(lambda: slurm.state(job) == "FAILED", 60)

    assert slurm.job(job)["ExitCode"] == "6:0"
    assert len(project.requests()) == asked
    assert "max_requeues is 0" in project.logs()


def test_a_failure_that_would_repeat_itself_is_not_requeued(project: Project, slurm: SlurmCluster) -> None:
    project.config["services"]["policy"]["command"] = ["false"]
    project.benchmark("math", tasks=2)
    project.submit()
    job = job_id(project)

    slurm.wait_for(lambda: slurm.state(job) == "FAILED", 60)

    assert (slurm.job(job)["Restarts"], slurm.job(job)["ExitCode"]) == ("0", "5:0")

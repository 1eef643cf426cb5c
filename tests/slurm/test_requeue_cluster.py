"""Lost nodes, preemption without an end and failures that repeat themselves, on a real scheduler."""

from __future__ import annotations

import socket
from collections import Counter
from pathlib import Path
from typing import Any

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
    # submitit's word for a signal that Slurm sends before each SIGTERM.
    assert "SIGCONT" not in project.logs()


def test_a_failure_that_would_repeat_itself_is_not_requeued(project: Project, slurm: SlurmCluster) -> None:
    project.config["services"]["policy"]["command"] = ["false"]
    project.benchmark("math", tasks=2)
    project.submit()
    job = job_id(project)

    slurm.wait_for(lambda: slurm.state(job) == "FAILED", 60)

    assert (slurm.job(job)["Restarts"], slurm.job(job)["ExitCode"]) == ("0", "5:0")


def test_a_job_that_waits_for_a_server_is_told_with_how_long_and_waits_anew_after_a_preemption(
    project: Project, slurm: SlurmCluster
) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}/v1"
        project.config["services"] = {"policy": {"type": "external", "url": url, "served_model_name": "test-model"}}
        project.benchmark("math", tasks=2)
        project.submit()

        def wait() -> dict[str, Any] | None:
            (shard,) = project.status()["benchmarks"][0]["shards"]
            return next((wait for wait in shard["waits"] if wait["reason"]), None)

        first = slurm.wait_for(wait, 60)
        job = job_id(project)
        with slurm.preempt(4):
            slurm.wait_for(lambda: slurm.state(job) == "PENDING")
            assert wait() is None
        slurm.start_now(job)
        again = slurm.wait_for(wait, 60)

    assert first is not None
    assert again is not None
    assert first["address"] == again["address"] == url
    assert first["since"] < again["since"]

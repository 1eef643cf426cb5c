"""Jobs over several node pools on a real scheduler: services where they are pinned, one life for all parts of a job."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.orchestrate.project import Project
from tests.support.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]

WHERE = "echo runs on $SLURMD_NODENAME in step $SLURM_STEP_ID; exec "


def pinned(project: Project, name: str, pool: str, **switches: Any) -> None:
    """A model server as service ``name`` on ``pool`` that says on which node it runs."""
    service = project.service(host="{host}", **switches)
    command = " ".join(f"'{part}'" for part in service["command"])
    project.config["services"][name] = {**service, "command": f"{WHERE}{command}", "node_pool": pool}


def two_pools(tmp_path: Path, first: dict[str, Any], second: dict[str, Any], **switches: Any) -> Project:
    """The policy runs in the second pool, the collector in the first; a judge beside the collector."""
    pools = {"front": first, "back": second}
    project = Project(tmp_path / "user", {"type": "slurm", "walltime": "10m", "mem": "200M", "node_pools": pools})
    pinned(project, "policy", "back", **switches)
    pinned(project, "judge", "front")
    return project


def report(project: Project) -> dict[str, Any]:
    return project.status()["benchmarks"][0]


def job_id(project: Project) -> str:
    return report(project)["shards"][0]["job_id"]


def nodes_of(cluster: SlurmCluster, job: str) -> dict[str, str]:
    """The node of each component."""
    lines = cluster.run("squeue", "--noheader", "--states=all", "--format=%i|%N", f"--jobs={job}").splitlines()
    return {text.partition("+")[2]: node for text, node in (line.split("|") for line in lines)}


def words_of(project: Project, service: str) -> str:
    return "".join(path.read_text() for path in sorted((project.run_dir / "math" / "logs").glob(f"{service}-*.log")))


def test_services_of_two_partitions_work_in_one_job(tmp_path: Path, slurm: SlurmCluster) -> None:
    project = two_pools(tmp_path, {"partition": "batch"}, {"partition": "high"}, delay=0.2)
    project.benchmark("math", tasks=8, shards=2, num_samples_in_parallel=1)
    project.submit()
    slurm.wait_for(lambda: len(project.requests()) >= 2, 60)
    nodes = nodes_of(slurm, job_id(project))

    done = project.gym("watch", "--every", "1", timeout_s=120)

    assert done.returncode == 0, done.stdout + done.stderr + project.logs()
    assert (report(project)["measured"], len({shard["job_id"] for shard in report(project)["shards"]})) == (8, 2)
    assert nodes["0"] != nodes["1"]
    assert f"runs on {nodes['1']} in step " in words_of(project, "policy")
    # On the collector's own node a service is its child, and no step.
    assert f"runs on {nodes['0']} in step \n" not in words_of(project, "policy")
    assert f"runs on {nodes['0']}" in words_of(project, "judge")


def test_a_heterogeneous_job_is_requeued_as_a_whole_and_resumes(tmp_path: Path, slurm: SlurmCluster) -> None:
    project = two_pools(tmp_path, {"partition": "batch"}, {"partition": "batch", "extra_args": {"comment": "b"}}, delay=2)
    project.benchmark("math", tasks=12, num_samples_in_parallel=2)
    project.submit()
    slurm.wait_for(lambda: len(project.requests()) >= 4, 60)
    job = job_id(project)

    with slurm.preempt(4):
        slurm.wait_for(lambda: report(project)["shards"][0]["job_state"] == "PENDING", 60)
    start_all(slurm, job)
    slurm.wait_for(lambda: report(project)["shards"][0]["final"], 90)

    assert (report(project)["measured"], report(project)["shards"][0]["sessions"]) == (12, 2)
    assert job_id(project) == job
    repeated = [task for task, count in Counter(request["task"] for request in project.requests()).items() if count > 1]
    assert len(repeated) <= 2


def start_all(cluster: SlurmCluster, job: str) -> None:
    """Every component is held for itself."""
    lines = cluster.run("squeue", "--noheader", "--states=all", "--format=%A", f"--jobs={job}").split()
    time.sleep(2)
    for component in lines:
        cluster.wait_for(lambda component=component: cluster.let_start(component))


def test_pools_that_differ_in_size_alone_are_one_allocation_with_arrays(tmp_path: Path, slurm: SlurmCluster) -> None:
    pool = {"partition": "batch"}
    project = two_pools(tmp_path, pool, dict(pool), delay=0.1)
    project.benchmark("math", tasks=4, shards=2)

    said = project.submit("--wait", timeout_s=150)

    assert "1 (4/4)" in said or "0.75 (4/4)" in said
    jobs = {shard["job_id"] for shard in report(project)["shards"]}
    assert {job.partition("_")[2] for job in jobs} == {"0", "1"}
    assert "in step 0" in words_of(project, "policy") or "in step 1" in words_of(project, "policy")


def test_status_logs_why_and_cancel_work_on_a_heterogeneous_job(tmp_path: Path, slurm: SlurmCluster) -> None:
    project = two_pools(tmp_path, {"partition": "batch"}, {"partition": "high"}, delay=2)
    project.benchmark("math", tasks=20, num_samples_in_parallel=1)
    project.submit()
    slurm.wait_for(lambda: len(project.requests()) >= 2, 60)

    status = project.gym("status")
    logs = project.gym("logs", "--service", "policy")
    why = project.gym("why", project.run_dir.name, "0-0")
    drained = project.gym("cancel", "--finish", timeout_s=120)

    assert "1 running" in status.stdout
    assert "runs on n" in logs.stdout
    assert "attempt 0" in why.stdout
    assert drained.returncode == 0, drained.stderr
    assert set(nodes_states(slurm, job_id(project))) <= {"CANCELLED", "FAILED", "COMPLETED"}
    assert report(project)["shards"][0]["completed"] >= 1


def nodes_states(cluster: SlurmCluster, job: str) -> list[str]:
    return cluster.run("squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={job}").split()

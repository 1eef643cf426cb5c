"""Operating a run on a real cluster: watch, logs, cancel, why and waste, with preemption in between; and the doctor there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.orchestrate.project import Project
from tests.support.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]


@pytest.fixture
def project(tmp_path: Path, slurm: SlurmCluster) -> Project:
    return Project(tmp_path / "user", {"type": "slurm", "partition": "batch", "walltime": "10m", "mem": "200M"})


def slow(project: Project, cluster: SlurmCluster, *, tasks: int = 60, shards: int = 2, **compute: Any) -> None:
    project.config["services"]["policy"] = project.service(delay=0.5)
    project.config["compute"]["here"] |= compute
    project.benchmark("math", tasks=tasks, shards=shards, num_samples_in_parallel=1)
    project.submit()
    cluster.wait_for(lambda: len(project.requests()) >= 3, 60)


def shard_ids(project: Project) -> list[str]:
    return [shard["job_id"] for shard in project.status()["benchmarks"][0]["shards"]]


def queued(cluster: SlurmCluster) -> set[str]:
    return {job.job_id for job in cluster.squeue() if job.state not in {"COMPLETING", "CANCELLED", "COMPLETED"}}


def test_cancel_ends_running_and_waiting_tasks_and_what_follows_them(project: Project, slurm: SlurmCluster) -> None:
    slow(project, slurm, shards=4, max_concurrent=1)
    assert len(shard_ids(project)) == 4

    done = project.gym("cancel", timeout_s=120)

    assert done.returncode == 0, done.stderr
    assert queued(slurm) == set()
    shards = project.status()["benchmarks"][0]["shards"]
    # Slurm keeps no trace of array tasks that never started.
    assert {shard["job_state"] for shard in shards} <= {"CANCELLED", None}
    assert "Go on with the same gym eval submit" in done.stdout


def test_one_cancelled_task_leaves_the_array_at_work(project: Project, slurm: SlurmCluster) -> None:
    slow(project, slurm)
    first, second = shard_ids(project)

    done = project.gym("cancel", "--shard", "1", timeout_s=120)

    assert done.returncode == 0, done.stderr
    assert slurm.state(second) == "CANCELLED"
    assert slurm.state(first) == "RUNNING"


def test_a_job_that_waits_after_a_preemption_is_cancelled_there(project: Project, slurm: SlurmCluster) -> None:
    slow(project, slurm, shards=1)
    (job_id,) = shard_ids(project)
    with slurm.preempt(4):
        slurm.wait_for(lambda: slurm.state(job_id) == "PENDING")

        done = project.gym("cancel", timeout_s=120)

    assert done.returncode == 0, done.stderr
    assert slurm.state(job_id) == "CANCELLED"


def test_finish_lets_requests_end_and_merges_what_is_there(project: Project, slurm: SlurmCluster) -> None:
    slow(project, slurm, shards=3, max_concurrent=2)

    done = project.gym("cancel", "--finish", timeout_s=120)

    assert done.returncode == 0, done.stderr
    assert "(partial)" in done.stdout
    assert queued(slurm) == set()
    benchmark = project.status()["benchmarks"][0]
    rows = Path(benchmark["merged"]).read_text().splitlines()
    # A drained collector records every answer it asked for.
    assert len(rows) == benchmark["measured"] == len(project.requests())
    assert benchmark["coverage"]["states"]["unknown"] == 0


def test_nothing_is_cancelled_when_the_controller_cannot_be_asked(project: Project, slurm: SlurmCluster) -> None:
    slow(project, slurm)
    before = shard_ids(project)
    slurm.stop_controller()

    done = project.gym("cancel", timeout_s=200)
    slurm.start_controller()

    assert done.returncode == 5
    assert "could not be asked" in done.stderr
    assert [slurm.state(job_id) for job_id in before] == ["RUNNING", "RUNNING"]


def test_logs_of_a_preempted_task_hold_both_of_its_runs(project: Project, slurm: SlurmCluster) -> None:
    slow(project, slurm, tasks=12, shards=1)
    (job_id,) = shard_ids(project)
    with slurm.preempt(4):
        slurm.wait_for(lambda: slurm.state(job_id) == "PENDING")
    slurm.start_now(job_id)

    followed = project.gym("logs", "--follow", "--benchmark", "math", "-n", "100", timeout_s=120)

    assert followed.returncode == 0, followed.stderr
    assert followed.stdout.count("waiting for the services") == 2
    assert "12 of 12 rollouts completed" in followed.stdout
    assert "listening" in project.gym("logs", "--service", "policy").stdout


def test_watch_why_and_waste_tell_of_a_preemption(project: Project, slurm: SlurmCluster) -> None:
    slow(project, slurm, tasks=12, shards=1)
    (job_id,) = shard_ids(project)
    with slurm.preempt(4):
        slurm.wait_for(lambda: slurm.state(job_id) == "PENDING")
    slurm.start_now(job_id)

    watched = project.gym("watch", "--every", "1", timeout_s=120)
    waste = json.loads(project.gym("status", "--waste", "--json").stdout)
    stories = [json.loads(project.gym("why", str(project.run_dir), f"{task}-0", "--json").stdout)[0] for task in range(12)]

    assert watched.returncode == 0, watched.stderr
    assert "0.75 (12/12)" in watched.stdout
    assert {attempt["session"]["restart_count"] for story in stories for attempt in story["attempts"]} == {0, 1}
    (benchmark,) = waste["benchmarks"]
    assert (benchmark["measured"], benchmark["sessions"]) == (12, 2)
    assert benchmark["queued_s"] is None
    assert waste["accounting_trouble"]
    assert 0 < benchmark["job_s"] < 120


def test_the_doctor_looks_from_two_nodes(project: Project, slurm: SlurmCluster) -> None:
    project.benchmark("math", tasks=2)

    done = project.gym("doctor", "--config", str(project.write()), "--nodes", "--json", timeout_s=200)

    assert done.returncode == 0, done.stdout
    found = {finding["subject"]: finding for finding in json.loads(done.stdout)}
    assert found["accounting"]["level"] == "warn"
    assert found["two nodes: lock"]["level"] == found["two nodes: replace"]["level"] == "ok"
    assert found["preemption"]["text"].startswith("requeue")
    clocks = [finding["text"] for finding in json.loads(done.stdout) if finding["subject"] == "clock"]
    assert len(clocks) == 2
    assert {text.split(":")[0] for text in clocks} <= {"n1", "n2", "n3", "n4"}


def test_the_doctor_names_a_partition_that_is_not_there(project: Project, slurm: SlurmCluster) -> None:
    project.config["compute"]["here"]["partition"] = "nowhere"
    project.benchmark("math", tasks=2)

    done = project.gym("doctor", "--config", str(project.write()))

    assert done.returncode == 5
    assert "fail  partition: nowhere" in done.stdout


def test_job_hours_and_what_was_lost_come_from_accounting(tmp_path: Path, slurm_accounting: SlurmCluster) -> None:
    project = Project(tmp_path / "user", {"type": "slurm", "partition": "batch", "walltime": "10m", "mem": "200M"})
    slow(project, slurm_accounting, tasks=8, shards=1)
    (job_id,) = shard_ids(project)
    with slurm_accounting.preempt(4):
        slurm_accounting.wait_for(lambda: slurm_accounting.state(job_id) == "PENDING")
    slurm_accounting.start_now(job_id)
    assert project.gym("watch", "--every", "1", timeout_s=120).returncode == 0

    waste = slurm_accounting.wait_for(lambda: _complete(project), 60)

    assert waste["accounting_trouble"] is None
    (benchmark,) = waste["benchmarks"]
    assert (benchmark["measured"], benchmark["sessions"]) == (8, 2)
    assert benchmark["job_s"] > 0
    assert benchmark["queued_s"] is not None
    assert benchmark["startup_s"] > 0


def _complete(project: Project) -> dict[str, Any] | None:
    """The waste once the books hold both runs of the job; accounting may lag behind."""
    waste = json.loads(project.gym("status", "--waste", "--json").stdout)
    benchmark = waste["benchmarks"][0]
    return waste if benchmark["job_s"] > 0 and benchmark["startup_s"] else None

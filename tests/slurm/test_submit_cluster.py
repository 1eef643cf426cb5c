"""Submitting to a real Slurm: arrays, repetition, preemption, and what status says before, during and after."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.orchestrate.project import Project, tree
from tests.support.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(180)]


@pytest.fixture
def project(tmp_path: Path, slurm: SlurmCluster) -> Project:
    return Project(tmp_path / "user", {"type": "slurm", "walltime": "10m", "mem": "200M"})


def states(report: dict[str, Any], benchmark: int = 0) -> list[str | None]:
    return [shard["job_state"] for shard in report["benchmarks"][benchmark]["shards"]]


def finished(project: Project) -> bool:
    return all(shard["final"] for benchmark in project.status()["benchmarks"] for shard in benchmark["shards"])


def test_a_submitted_run_completes_and_is_merged(project: Project) -> None:
    project.benchmark("math", tasks=8, shards=2)
    project.benchmark("gpqa/diamond", tasks=3)

    said = project.submit("--wait", timeout_s=120)

    assert "math" in said
    assert "0.75 (8/8)" in said
    assert "0.6667 (3/3)" in said
    merged = project.run_dir / "gpqa+2Fdiamond" / "rollouts.jsonl"
    assert len(merged.read_text().splitlines()) == 3
    assert Counter(request["task"] for request in project.requests()).most_common(1)[0][1] == 1


def test_a_second_submit_submits_nothing(project: Project, slurm: SlurmCluster) -> None:
    project.config["services"]["policy"] = project.service(delay=4)
    project.benchmark("math", tasks=8, shards=2, num_samples_in_parallel=1)
    project.submit()
    before = {job.name for job in slurm.squeue("-t", "all")}

    said = project.submit()

    assert "2 with a job already" in said
    # Slurm forgets jobs of before meanwhile; what counts is that no new one is there.
    assert {job.name for job in slurm.squeue("-t", "all")} <= before
    slurm.wait_for(lambda: finished(project), 60)
    assert "2 final" in project.submit()
    assert {job.name for job in slurm.squeue("-t", "all")} <= before


def test_a_dry_run_creates_nothing_and_shows_the_script(project: Project, slurm: SlurmCluster) -> None:
    project.benchmark("math", tasks=8, shards=2)
    project.write()
    before, jobs_before = tree(project.root), slurm.squeue("-t", "all")

    said = project.submit("--dry-run")

    assert tree(project.root) == before
    assert "#SBATCH --array=0-1" in said
    assert "10 minutes" in said
    assert slurm.squeue("-t", "all") == jobs_before


def test_a_preempted_shard_goes_on_where_it_was(project: Project, slurm: SlurmCluster) -> None:
    project.config["services"]["policy"] = project.service(delay=0.4)
    project.benchmark("math", tasks=12, num_samples_in_parallel=2)
    project.submit()
    slurm.wait_for(lambda: len(project.requests()) >= 4, 60)

    with slurm.preempt(4):
        job_id = project.status()["benchmarks"][0]["shards"][0]["job_id"]
        slurm.wait_for(lambda: slurm.state(job_id) == "PENDING")
        during = project.status()["benchmarks"][0]["shards"][0]
    slurm.start_now(job_id)
    slurm.wait_for(lambda: finished(project), 90)

    assert during["job_state"] == "PENDING"
    assert 0 < during["completed"] < 12
    after = project.status()["benchmarks"][0]
    assert (after["shards"][0]["sessions"], after["measured"]) == (2, 12)
    # What was recorded before the preemption was not asked again; what was in flight may have been.
    repeated = [task for task, count in Counter(request["task"] for request in project.requests()).items() if count > 1]
    assert len(repeated) <= 2
    # Their connections died with the job's own server: an interruption, and no failure of a task.
    assert not next(project.run_dir.glob("math/shards/*/rollouts_failures.jsonl")).read_bytes()
    assert len((project.run_dir / "math" / "logs" / f"job-{job_id}.log").read_text().splitlines()) > 5


def test_a_collector_that_finds_the_shard_taken_ends_with_4(
    project: Project, slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", project.environment()["PYTHONPATH"])
    project.config["services"]["policy"] = project.service(delay=1)
    project.benchmark("math", tasks=6, num_samples_in_parallel=1)
    project.submit()
    slurm.wait_for(lambda: len(project.requests()) >= 1, 60)
    script = next(project.run_dir.glob("math/jobs/gym-math-*/job.sh"))

    second = slurm.run("sbatch", "--parsable", str(script)).strip()
    slurm.wait_for(lambda: slurm.state(second) not in {"PENDING", "RUNNING", "COMPLETING"}, 60)

    assert slurm.job(second)["ExitCode"] == "4:0"
    log = (project.run_dir / "math" / "logs" / f"job-{second}.log").read_text()
    assert "the shard is owned by process" in log


def test_hostile_names_reach_slurm_as_they_are(tmp_path: Path, slurm: SlurmCluster) -> None:
    project = Project(tmp_path / """a 'b' "c" %j $(touch PWN)""", {"type": "slurm", "walltime": "10m"})
    project.benchmark("""mmlu: x'y "z" #1""", tasks=2, shards=2)

    said = project.submit("--wait", timeout_s=120)

    assert "0.5 (2/2)" in said
    assert not list(tmp_path.rglob("PWN"))
    logs = [path.name for path in project.run_dir.rglob("logs/job-*.log")]
    assert len(logs) == 2


def test_a_job_near_its_time_limit_goes_back_to_the_queue(project: Project, slurm: SlurmCluster) -> None:
    project.config["services"]["policy"] = project.service(delay=1)
    project.benchmark("math", tasks=12, num_samples_in_parallel=1)
    project.submit()
    slurm.wait_for(lambda: len(project.requests()) >= 2, 60)
    job_id = project.status()["benchmarks"][0]["shards"][0]["job_id"]

    slurm.run("scancel", "--batch", "--signal=USR2", job_id)
    slurm.wait_for(lambda: slurm.state(job_id) == "PENDING", 60)
    requests_before = Counter(request["task"] for request in project.requests())
    slurm.start_now(job_id)
    slurm.wait_for(lambda: finished(project), 90)

    assert requests_before.total() < 12
    assert set(Counter(request["task"] for request in project.requests()).values()) == {1}
    assert project.status()["benchmarks"][0]["shards"][0]["sessions"] == 2


def test_status_works_without_a_scheduler(project: Project, slurm: SlurmCluster) -> None:
    project.benchmark("math", tasks=4)
    project.submit("--wait", timeout_s=120)

    done = project.gym("status", str(project.run_dir), "--json", env={"SLURM_CONF": "/nowhere"})

    report = json.loads(done.stdout)
    assert done.returncode == 0
    assert report["scheduler_trouble"]
    assert report["benchmarks"][0]["measured"] == 4
    assert report["benchmarks"][0]["shards"][0]["knowledge"] == "could_not_ask"


def test_the_exit_code_of_a_job_is_its_collectors(project: Project, slurm: SlurmCluster) -> None:
    project.config["services"]["policy"]["command"] = ["false"]
    project.benchmark("math", tasks=2)
    project.submit()
    job_id = project.status()["benchmarks"][0]["shards"][0]["job_id"]

    slurm.wait_for(lambda: slurm.state(job_id) == "FAILED", 60)

    assert slurm.job(job_id)["ExitCode"] == "5:0"
    log = (project.run_dir / "math" / "logs" / f"job-{job_id}.log").read_text()
    assert "service policy: ended with exit code 1" in log


def test_secrets_stay_in_the_environment(project: Project, slurm: SlurmCluster) -> None:
    project.config["services"]["policy"]["env"] = {"HF_TOKEN": "host:PROBE_TOKEN"}
    project.benchmark("math", tasks=2)
    path = project.write()

    done = project.gym("submit", str(path), "--wait", env={"PROBE_TOKEN": "hf_PROBE123"}, timeout_s=120)

    assert done.returncode == 0, done.stderr
    assert "hf_PROBE123" not in done.stdout + done.stderr
    found = subprocess.run(["grep", "-rl", "hf_PROBE123", str(project.root)], capture_output=True, text=True, check=False)
    assert found.stdout == ""


def test_a_job_that_really_runs_out_of_time_comes_back_and_finishes(project: Project, slurm: SlurmCluster) -> None:
    """The limit is one minute, the work is longer: Slurm warns, the collector drains, and the queue has the job again."""
    project.config["compute"]["here"]["walltime"] = "1m"
    project.config["services"]["policy"] = project.service(delay=2)
    project.benchmark("math", tasks=40, num_samples_in_parallel=1)
    project.submit()
    job_id = project.status()["benchmarks"][0]["shards"][0]["job_id"]

    slurm.wait_for(lambda: int(slurm.job(job_id)["Restarts"]) >= 1, 100)

    counts = Counter(request["task"] for request in project.requests())
    assert set(counts.values()) == {1}
    shard = project.status()["benchmarks"][0]["shards"][0]
    assert shard["completed"] == counts.total()
    assert "going back to the queue" in project.logs()


def test_status_names_what_accounting_knows_after_the_queue_forgot(tmp_path: Path, slurm_accounting: SlurmCluster) -> None:
    project = Project(tmp_path / "user", {"type": "slurm", "walltime": "10m", "account": "research"})
    project.benchmark("math", tasks=2, shards=2)

    said = project.submit("--wait", timeout_s=120)

    assert "0.5 (2/2)" in said
    job_id = project.status()["benchmarks"][0]["shards"][0]["job_id"]
    # The books are written a little later than the queue.
    command = ("sacct", "-n", "-P", "-X", "-j", job_id, "--format=State,Account")
    slurm_accounting.wait_for(lambda: slurm_accounting.run(*command).strip() == "COMPLETED|research")


def test_a_cancelled_shard_is_submitted_again_by_the_same_command(project: Project, slurm: SlurmCluster) -> None:
    project.config["services"]["policy"] = project.service(delay=0.5)
    project.benchmark("math", tasks=8, num_samples_in_parallel=1)
    project.submit()
    slurm.wait_for(lambda: len(project.requests()) >= 3, 60)
    job_id = project.status()["benchmarks"][0]["shards"][0]["job_id"]

    slurm.run("scancel", job_id)
    slurm.wait_for(lambda: slurm.state(job_id) == "CANCELLED", 60)
    said = project.submit("--wait", timeout_s=120)

    assert "1 submitted" in said
    assert "0.75 (8/8)" in said
    # SIGTERM was seen: what was in flight was finished or given up within seconds, and nothing recorded was asked again.
    repeated = [task for task, count in Counter(request["task"] for request in project.requests()).items() if count > 1]
    assert len(repeated) <= 1

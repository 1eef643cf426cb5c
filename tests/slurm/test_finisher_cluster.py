"""The job that follows all jobs of a benchmark, on a real scheduler: it waits for no success and reports none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.orchestrate.project import Project
from tests.support.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]


@pytest.fixture
def project(tmp_path: Path, slurm: SlurmCluster) -> Project:
    return Project(tmp_path / "user", {"type": "slurm", "walltime": "10m", "mem": "200M"})


def finisher(project: Project) -> str:
    receipts = [json.loads(line) for line in (project.run_dir / "submissions.jsonl").read_text().splitlines()]
    return [receipt["jobs"]["-1"] for receipt in receipts if "-1" in receipt.get("jobs", {})][-1]


def test_a_benchmark_with_a_cancelled_shard_is_published_partly(project: Project, slurm: SlurmCluster) -> None:
    # Slower than a cancellation on a busy machine: no shard may be whole by then.
    project.config["services"]["policy"] = project.service(delay=2)
    project.benchmark("math", tasks=12, shards=3, num_samples_in_parallel=1)
    project.submit()
    slurm.wait_for(lambda: len(project.requests()) >= 3, 60)

    slurm.run("scancel", project.status()["benchmarks"][0]["shards"][1]["job_id"])
    slurm.wait_for(lambda: slurm.state(finisher(project)) not in {"PENDING", "RUNNING", "COMPLETING"}, 120)

    receipt = json.loads((project.run_dir / "math" / "rollouts.partial_merge.json").read_text())
    coverage = json.loads((project.run_dir / "math" / "rollouts.partial_coverage.json").read_text())
    assert slurm.job(finisher(project))["ExitCode"] == "6:0"
    assert receipt["partial"] is True
    assert 8 <= coverage["measured"] < 12
    assert coverage["expected"] == 12


def test_a_finisher_of_a_whole_benchmark_changes_nothing(project: Project, slurm: SlurmCluster) -> None:
    project.benchmark("math", tasks=4, shards=2)
    project.submit("--wait", timeout_s=120)
    receipt = (project.run_dir / "math" / "rollouts_merge.json").stat()

    slurm.wait_for(lambda: slurm.state(finisher(project)) == "COMPLETED", 60)

    assert (project.run_dir / "math" / "rollouts_merge.json").stat().st_ino == receipt.st_ino
    assert "already merged" in project.logs()

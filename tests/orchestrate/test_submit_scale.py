"""Thousands of shards: arrays, ids and the map from shard to job are exact, and each program of Slurm is called once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.orchestrate.fake_slurm import FakeSlurm
from tests.orchestrate.project import Project


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_three_thousand_shards_have_a_job_each(tmp_path: Path) -> None:
    fake = FakeSlurm(tmp_path / "bin")
    project = Project(tmp_path / "user", {"type": "slurm", "walltime": "1h"})
    project.benchmark("a", tasks=3000, shards=3000)

    done = project.gym("submit", str(project.write()), env=fake.env, timeout_s=250)

    assert done.returncode == 0, done.stderr
    receipts = [json.loads(line) for line in (project.run_dir / "submissions.jsonl").read_text().splitlines()]
    jobs = {
        int(index): job for receipt in receipts if receipt["event"] == "submitted" for index, job in receipt["jobs"].items()
    }
    expected = [*(f"101_{k}" for k in range(1001)), *(f"102_{k}" for k in range(1001)), *(f"103_{k}" for k in range(998))]
    assert [jobs[index] for index in range(3000)] == expected
    assert [job[0] for job in fake.jobs()] == expected
    scripts = [path.read_text() for path in sorted(project.run_dir.glob("a/jobs/gym-a-*/job.sh"))]
    arrays = sorted(line for text in scripts for line in text.splitlines() if "--array=" in line)
    assert arrays == ["#SBATCH --array=0-1000", "#SBATCH --array=0-1000", "#SBATCH --array=0-997"]
    report = json.loads(project.gym("status", str(project.run_dir), "--json", env=fake.env).stdout)
    assert [shard["job_id"] for shard in report["benchmarks"][0]["shards"]] == expected
    assert len((fake.directory / "squeue.calls").read_text().splitlines()) == 1
    assert not (fake.directory / "sacct.calls").exists()

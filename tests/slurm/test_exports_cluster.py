"""Exports do not keep GPUs: a job that holds some leaves them to the finisher that follows it; a job without does them itself.

No GPU can exist here: the variable by which Slurm tells a job that it holds some is set by the job's own setup lines.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.orchestrate.project import Project
from tests.support.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(180)]

HOLDS_GPUS = "export SLURM_JOB_GPUS=0,1"
LEFT = "the exports are left to the finisher, which holds no GPU"


@pytest.fixture
def project(tmp_path: Path, slurm: SlurmCluster) -> Project:
    made = Project(tmp_path / "user", {"type": "slurm", "walltime": "10m", "mem": "200M"})
    made.benchmark("math", tasks=4, shards=2)
    made.config["export"] = {"csv": {}}
    return made


def log_of(project: Project, pattern: str) -> str:
    return "".join(path.read_text() for path in project.run_dir.rglob(f"logs/{pattern}"))


def ledger(project: Project) -> list[str]:
    lines = (project.run_dir / "math" / "rollouts_exports.jsonl").read_text().splitlines()
    return [json.loads(line)["event"] for line in lines]


def test_a_job_with_gpus_leaves_its_exports_to_the_finisher_and_the_wait_includes_them(project: Project) -> None:
    project.config["compute"]["here"]["setup"] = [HOLDS_GPUS]

    project.submit("--wait", timeout_s=120)

    assert (project.run_dir / "math" / "rollouts_table.csv").exists()
    assert ledger(project) == ["started", "succeeded"]
    assert LEFT in log_of(project, "job-*.log")
    assert "Export csv" not in log_of(project, "job-*.log")
    assert "Export csv: succeeded" in log_of(project, "finisher-*.log")
    assert "2 final" in project.submit()


def test_a_job_without_gpus_exports_at_once(project: Project) -> None:
    project.submit("--wait", timeout_s=120)

    assert ledger(project) == ["started", "succeeded"]
    assert "Export csv: succeeded" in log_of(project, "job-*.log")


def test_a_tracker_is_sent_a_result_once_though_the_finisher_looks_at_it_again(project: Project, slurm: SlurmCluster) -> None:
    """The settings beside a result named the output of whichever job wrote them last: each run was in W&B and MLflow twice."""
    project.config["export"] = {"wandb": {"project": "p", "mode": "offline"}}

    project.submit("--wait", timeout_s=100)
    slurm.wait_for(lambda: "Export wandb: " in log_of(project, "finisher-*.log"), 60)

    assert "Export wandb: succeeded" in log_of(project, "job-*.log")
    assert "already exported" in log_of(project, "finisher-*.log")
    assert ledger(project) == ["started", "succeeded"]
    written = (project.run_dir / "math" / "rollouts_config.yaml").read_text()
    assert f"output_jsonl_fpath: {project.run_dir}/math/rollouts.jsonl\n" in written


def test_a_job_with_gpus_whose_finisher_is_gone_exports_itself(project: Project, slurm: SlurmCluster) -> None:
    project.config["compute"]["here"]["setup"] = [HOLDS_GPUS]
    project.config["services"]["policy"] = project.service(delay=1)
    project.submit()
    finisher = next(job for job in slurm.squeue() if job.name.startswith("gym-finish-"))
    slurm.run("scancel", finisher.job_id)

    slurm.wait_for(lambda: not slurm.squeue(), 90)

    assert ledger(project) == ["started", "succeeded"]
    assert LEFT not in log_of(project, "job-*.log")

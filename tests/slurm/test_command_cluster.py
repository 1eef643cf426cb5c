"""A benchmark that is one command, on a real scheduler: preempted, out of time, and lost with its node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.orchestrate.project import Project
from tests.support.cluster import SlurmCluster
from tests.support.processes import marked_pids

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

SCORE = """echo '{"reward": 0.5}' > "$GYM_EVAL_RESULT" """


@pytest.fixture
def project(tmp_path: Path, slurm: SlurmCluster) -> Project:
    project = Project(tmp_path / "user", {"type": "slurm", "walltime": "10m", "mem": "200M"})
    project.config["services"] = {}
    del project.config["driver"]["policy_model"]
    return project


def benchmark(project: Project) -> dict[str, Any]:
    (found,) = project.status()["benchmarks"]
    return found


def finished(project: Project) -> bool:
    return bool(benchmark(project)["shards"][0]["final"])


def failures(project: Project) -> str:
    return (project.run_dir / "swe" / "shards" / "0-of-1" / "rollouts_failures.jsonl").read_text()


def begun_anew(project: Project, first: str) -> str:
    """A command that does ``first`` the first time it runs, and is done at once the second time; and what tells that it ran."""
    seen = project.root / "seen"
    text = f"if [ -e {seen} ]; then {SCORE}; else touch {seen}; {first}; fi"
    project.config["driver"]["benchmarks"]["swe"] = {"command": text}
    return f"COMMAND_TEST={project.root}"


def test_a_preempted_command_is_cut_off_and_the_requeued_job_begins_it_anew(project: Project, slurm: SlurmCluster) -> None:
    mark = begun_anew(project, f"export COMMAND_TEST={project.root}; sleep 1000 & sleep 1000")
    project.submit()
    slurm.wait_for(lambda: len(marked_pids(mark)) >= 2, 60)
    job = benchmark(project)["shards"][0]["job_id"]

    with slurm.preempt(4):
        slurm.wait_for(lambda: slurm.state(job) == "PENDING", 60)
        assert marked_pids(mark) == []
        assert failures(project) == ""
    slurm.start_now(job)
    slurm.wait_for(lambda: finished(project), 90)

    found = benchmark(project)
    assert (found["measured"], found["mean_reward"], found["coverage"]["attempts"]) == (1, 0.5, 2)
    assert failures(project) == ""
    assert json.loads((project.run_dir / "swe" / "rollouts.jsonl").read_text())["_ng_attempt_index"] == 1


def test_a_command_is_told_of_the_time_limit_and_goes_on_from_what_it_saved(project: Project, slurm: SlurmCluster) -> None:
    saved = project.root / "saved"
    project.config["compute"]["here"]["walltime"] = "00:02:00"
    begun_anew(project, f"trap 'echo half > {saved}; exit 0' TERM; while true; do sleep 0.2; done")
    project.submit()
    job = benchmark(project)["shards"][0]["job_id"]
    slurm.wait_for((project.root / "seen").exists, 60)

    slurm.run("scancel", "--batch", "--signal=USR2", job)
    slurm.wait_for(lambda: slurm.job(job).get("Restarts") == "1", 90)
    slurm.start_now(job)
    slurm.wait_for(lambda: finished(project), 90)

    assert saved.read_text() == "half\n"
    assert benchmark(project)["measured"] == 1
    assert failures(project) == ""


def test_a_command_that_fails_ends_its_job_for_good(project: Project, slurm: SlurmCluster) -> None:
    project.config["driver"]["benchmarks"]["swe"] = {"command": "echo no luck; exit 3"}
    project.submit()
    job = benchmark(project)["shards"][0]["job_id"]

    slurm.wait_for(lambda: slurm.state(job) == "FAILED", 60)

    assert (slurm.job(job)["Restarts"], slurm.job(job)["ExitCode"]) == ("0", "7:0")
    assert "the command ended with exit code 3; its last words: no luck" in failures(project)

"""A benchmark whose shards never end is published all the same, once, labelled partial, and never as a success."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.orchestrate.fake_slurm import ACCEPT, FakeSlurm
from tests.orchestrate.project import Project
from tests.support.processes import wait_for

LOCAL = {"type": "local", "max_concurrent": 2}


@pytest.fixture
def fake(tmp_path: Path) -> FakeSlurm:
    return FakeSlurm(tmp_path / "bin")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "user", {"type": "slurm", "walltime": "1:00:00", "mem": "99G", "gpus_per_node": 8})


def submit(project: Project, fake: FakeSlurm, code: int = 0) -> str:
    done = project.gym("submit", str(project.write()), env=fake.env)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def finisher_script(project: Project) -> str:
    (path,) = project.run_dir.glob("*/jobs/gym-finish-*/job.sh")
    return path.read_text()


def test_a_finisher_follows_all_jobs_of_its_benchmark_and_holds_no_gpu(project: Project, fake: FakeSlurm) -> None:
    project.benchmark("a", tasks=4, shards=2)

    said = submit(project, fake)

    assert "#SBATCH --dependency=afterany:101\n" in finisher_script(project)
    assert "99G" not in finisher_script(project)
    assert "gpus" not in finisher_script(project)
    assert "finisher 102" in said
    record = json.loads((project.run_dir / "gym-job.json").read_text())
    assert record["benchmarks"][0]["job_id"] == "101"


def test_a_finisher_that_waits_already_is_not_submitted_again(project: Project, fake: FakeSlurm) -> None:
    project.benchmark("a", tasks=4, shards=2)
    submit(project, fake)

    submit(project, fake)

    assert len(fake.finishers()) == 1


def test_a_lost_finisher_is_replaced_by_the_next_submit(project: Project, fake: FakeSlurm) -> None:
    project.benchmark("a", tasks=4, shards=2)
    refuse = 'case "$*" in *gym-finish-*) echo "sbatch: error: Job dependency problem" >&2; exit 1;; esac'
    fake.program("sbatch", f"{refuse}\n{ACCEPT}\necho $id")

    submit(project, fake, code=5)
    fake.program("sbatch", f"{ACCEPT}\necho $id")
    submit(project, fake)

    assert len(fake.jobs()) == 2
    assert len(fake.finishers()) == 1


@pytest.mark.timeout(120)
def test_the_last_process_of_a_benchmark_publishes_what_there_is(tmp_path: Path) -> None:
    project = Project(tmp_path / "user", LOCAL)
    project.config["services"]["policy"]["command"] = ["false"]
    project.benchmark("a", tasks=4, shards=2)

    project.submit()

    receipt = project.run_dir / "a" / "rollouts.partial_merge.json"
    wait_for(receipt.exists, 60)
    assert json.loads(receipt.read_text())["partial"] is True
    assert json.loads((project.run_dir / "a" / "rollouts.partial_coverage.json").read_text())["states"]["never_dispatched"] == 4


@pytest.mark.timeout(120)
def test_a_partial_projection_becomes_whole_when_the_shards_do(tmp_path: Path) -> None:
    project = Project(tmp_path / "user", LOCAL)
    works = project.config["services"]["policy"]["command"]
    project.config["services"]["policy"]["command"] = ["bash", "-c", f'test -e {tmp_path}/ready && exec "$@"', "-", *works]
    project.benchmark("a", tasks=4, shards=2)
    project.submit()
    receipt = project.run_dir / "a" / "rollouts_merge.json"
    wait_for((project.run_dir / "a" / "rollouts.partial_merge.json").exists, 60)
    (tmp_path / "ready").touch()

    project.submit("--wait", timeout_s=90)

    assert "partial" not in json.loads(receipt.read_text())
    assert len((project.run_dir / "a" / "rollouts.jsonl").read_text().splitlines()) == 4
    assert not list((project.run_dir / "a").glob("rollouts.partial*"))


@pytest.mark.timeout(120)
def test_the_last_process_publishes_what_there_is_when_its_own_shard_is_whole(tmp_path: Path) -> None:
    project = Project(tmp_path / "user", {"type": "local", "max_concurrent": 1})
    works = project.config["services"]["policy"]["command"]
    fails_first = f'mkdir {tmp_path}/once 2>/dev/null && exit 1; exec "$@"'
    project.config["services"]["policy"]["command"] = ["bash", "-c", fails_first, "-", *works]
    project.benchmark("a", tasks=4, shards=2)

    project.submit()

    receipt = project.run_dir / "a" / "rollouts.partial_merge.json"
    wait_for(receipt.exists, 60)
    assert json.loads(receipt.read_text())["partial"] is True
    assert json.loads((project.run_dir / "a" / "rollouts.partial_coverage.json").read_text())["states"]["never_dispatched"] == 2

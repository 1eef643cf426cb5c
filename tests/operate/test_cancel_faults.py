"""Cancelling when the scheduler misbehaves in ways that a real one cannot be made to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.orchestrate.fake_slurm import FakeSlurm
from tests.orchestrate.project import Project

pytestmark = pytest.mark.timeout(120)

CANCEL = 'for a in "$@"; do sed -i "s/^\\($a|.*|\\).*/\\1CANCELLED/" "$HERE/jobs"; done'


@pytest.fixture
def fake(tmp_path: Path) -> FakeSlurm:
    fake = FakeSlurm(tmp_path / "bin")
    fake.program("scancel", CANCEL)
    return fake


@pytest.fixture
def project(tmp_path: Path, fake: FakeSlurm) -> Project:
    project = Project(tmp_path / "user", {"type": "slurm", "walltime": "1h"})
    project.benchmark("math", tasks=6, shards=3)
    assert project.gym("submit", str(project.write()), env=fake.env).returncode == 0
    return project


def test_the_finisher_is_cancelled_before_the_shards_it_waits_for(project: Project, fake: FakeSlurm) -> None:
    done = project.gym("cancel", env=fake.env)

    assert done.returncode == 0, done.stderr
    finisher, *shards = fake.calls("scancel")
    assert "_" not in finisher
    assert "_0" in shards[0]
    assert "_2" in shards[0]
    assert {state for _, _, state in fake.jobs()} == {"CANCELLED"}


def test_one_shard_is_cancelled_without_its_finisher(project: Project, fake: FakeSlurm) -> None:
    project.gym("cancel", "--shard", "1", env=fake.env)

    assert [job_id.partition("_")[2] for job_id, _, state in fake.jobs() if state == "CANCELLED"] == ["1"]


def test_a_job_that_comes_back_to_the_queue_is_cancelled_again(project: Project, fake: FakeSlurm) -> None:
    # The first time, the controller requeues one of them at the same moment.
    once = f'{CANCEL}\nif [ ! -e "$HERE/once" ]; then touch "$HERE/once"; sed -i "0,/_0|/s/_0|\\(.*\\)|.*/_0|\\1|PENDING/" "$HERE/jobs"; fi'
    fake.program("scancel", once)

    done = project.gym("cancel", env=fake.env)

    assert done.returncode == 0, done.stderr
    assert {state for _, _, state in fake.jobs()} == {"CANCELLED"}


def test_a_scancel_that_refuses_is_told_in_its_own_words(project: Project, fake: FakeSlurm) -> None:
    fake.program("scancel", "echo 'scancel: error: Kill job error on job id 101: Access/permission denied' >&2; exit 1")

    done = project.gym("cancel", env=fake.env)

    assert done.returncode == 5
    assert "Access/permission denied" in done.stderr
    assert len(done.stderr.splitlines()) <= 2


@pytest.mark.parametrize("trouble", ["exit 1", "sleep 30"], ids=["fails", "hangs"])
def test_nothing_is_cancelled_by_who_could_not_ask(project: Project, fake: FakeSlurm, trouble: str) -> None:
    fake.program("squeue", trouble)

    done = project.gym("cancel", env=fake.env)

    assert done.returncode == 5
    assert "could not be asked" in done.stderr
    assert fake.calls("scancel") == []


def test_a_batch_whose_answer_was_lost_is_cancelled_by_its_name(project: Project, fake: FakeSlurm) -> None:
    receipts = project.run_dir / "submissions.jsonl"
    lines = [json.loads(line) for line in receipts.read_text().splitlines()]
    token = next(line["token"] for line in lines if line["event"] == "prepared" and line["indexes"] == [0, 1, 2])
    receipts.write_text(
        "".join(json.dumps(line) + "\n" for line in lines if line["event"] == "prepared" and line["token"] == token)
    )

    done = project.gym("cancel", env=fake.env)

    assert f"--name={token}" in fake.calls("scancel")
    assert "never answered" in done.stdout


def test_clean_leaves_a_run_alone_whose_jobs_cannot_be_asked_about(project: Project, fake: FakeSlurm) -> None:
    before = set(project.run_dir.rglob("*"))
    fake.program("squeue", "exit 1")

    done = project.gym("clean", str(project.run_dir), env=fake.env)

    assert done.returncode == 4
    assert "could not be asked" in done.stderr
    assert set(project.run_dir.rglob("*")) == before

"""A scheduler that lies, hangs, refuses or forgets: never two jobs for one shard, never a shard without anybody knowing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.orchestrate.fake_slurm import ACCEPT, LIST, FakeSlurm
from tests.orchestrate.project import Project


@pytest.fixture
def fake(tmp_path: Path) -> FakeSlurm:
    return FakeSlurm(tmp_path / "bin")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "user", {"type": "slurm", "walltime": "1:00:00"})


def submit(project: Project, fake: FakeSlurm, *arguments: str) -> tuple[int, str]:
    done = project.gym("submit", str(project.write()), *arguments, env=fake.env)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param("echo $id; exit 1", id="prints-the-id-and-fails"),
        pytest.param(
            "echo 'sbatch: error: Socket timed out on send/recv operation' >&2; exit 1", id="times-out-after-accepting"
        ),
        pytest.param("exit 0", id="says-nothing"),
        pytest.param("echo 'Welcome to cluster 42!'", id="banner-instead-of-an-id"),
        pytest.param("echo 'Welcome to cluster 42!'; echo \"$id;hpc\"", id="banner-and-id-with-cluster"),
    ],
)
def test_a_job_that_was_accepted_is_found_and_not_submitted_again(project: Project, fake: FakeSlurm, answer: str) -> None:
    project.benchmark("a", tasks=4, shards=2)
    project.benchmark("b", tasks=4)
    fake.program("sbatch", f"{ACCEPT}\n{answer}")

    first = submit(project, fake)
    second = submit(project, fake)

    assert (first[0], second[0]) == (0, 0), first[1] + second[1]
    assert len(fake.calls("sbatch")) == 2
    assert len(fake.jobs()) == 3
    record = json.loads((project.run_dir / "gym-job.json").read_text())
    assert [job["job_id"] for job in record["benchmarks"]] == ["101", "102"]


def test_what_a_limit_refused_is_all_that_a_second_submit_submits(project: Project, fake: FakeSlurm) -> None:
    for number in range(6):
        project.benchmark(f"b{number}", tasks=2)
    refuse = "echo 'sbatch: error: QOSMaxSubmitJobPerUserLimit' >&2; exit 1"
    fake.program("sbatch", f'if [ $(wc -l < "$HERE/sbatch.calls") -gt 3 ]; then {refuse}; fi\n{ACCEPT}\necho $id')

    code, said = submit(project, fake)
    jobs = fake.jobs()
    record = json.loads((project.run_dir / "gym-job.json").read_text())
    fake.program("sbatch", f"{ACCEPT}\necho $id")
    again = submit(project, fake)

    assert code == 5
    assert "QOSMaxSubmitJobPerUserLimit" in said
    assert "b3" in said
    assert [job["error"] is None for job in record["benchmarks"]] == [True, True, True, False, False, False]
    assert len(jobs) == 3
    assert again[0] == 0
    assert len(fake.jobs()) == 6
    assert len({name for _, name, _ in fake.jobs()}) == 6


def test_tasks_that_cannot_be_written_are_told_and_written_by_the_next_submit(project: Project, fake: FakeSlurm) -> None:
    project.benchmark("a", tasks=2)
    fake.program("sbatch", "echo 'sbatch: error: no account' >&2; exit 1")
    submit(project, fake)
    fake.program("sbatch", f"{ACCEPT}\necho $id")
    jobs = project.run_dir / "a" / "jobs"
    shutil.rmtree(jobs)
    jobs.write_text("a file where a folder should be")

    code, said = submit(project, fake)
    receipts = [json.loads(line)["event"] for line in (project.run_dir / "submissions.jsonl").read_text().splitlines()]
    jobs.unlink()
    again = submit(project, fake)

    assert code == 5
    assert "its tasks cannot be written: Not a directory" in said
    assert receipts == ["prepared", "failed", "prepared", "failed"]
    assert again[0] == 0, again[1]
    assert len(fake.jobs()) == 1


def test_an_answer_that_cannot_be_looked_up_is_settled_later(project: Project, fake: FakeSlurm) -> None:
    project.benchmark("a", tasks=2)
    fake.program("sbatch", f"{ACCEPT}\nexit 1")
    fake.program("squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")

    first = submit(project, fake)
    second = submit(project, fake)
    fake.program("squeue", LIST)
    third = submit(project, fake)

    assert (first[0], second[0], third[0]) == (5, 5, 0)
    assert "Unable to contact slurm controller" in first[1]
    assert len(fake.calls("sbatch")) == 1


def test_a_shard_whose_job_cannot_be_asked_about_gets_no_second_one(project: Project, fake: FakeSlurm) -> None:
    project.benchmark("a", tasks=2)
    submit(project, fake)
    fake.program("squeue", "exit 1")

    code, said = submit(project, fake)

    assert code == 5
    assert "cannot say" in said
    assert len(fake.jobs()) == 1


def test_a_job_that_ended_without_finishing_its_shard_is_replaced(project: Project, fake: FakeSlurm) -> None:
    project.benchmark("a", tasks=2)
    submit(project, fake)
    fake.program("squeue", "exit 0")

    code, _ = submit(project, fake)

    assert code == 0
    assert len(fake.jobs()) == 2


def test_arrays_stay_within_the_sites_limit(project: Project, fake: FakeSlurm) -> None:
    fake.program("scontrol", "echo 'MaxArraySize            = 4'")
    project.benchmark("a", tasks=9, shards=9)

    code, _ = submit(project, fake)

    assert code == 0
    scripts = [path.read_text() for path in project.run_dir.glob("a/jobs/gym-a-*/job.sh")]
    arrays = sorted(line for script in scripts for line in script.splitlines() if "--array" in line)
    assert arrays == ["#SBATCH --array=0-3", "#SBATCH --array=0-3"]
    assert len(scripts) == 3
    receipts = [json.loads(line) for line in (project.run_dir / "submissions.jsonl").read_text().splitlines()]
    mapped = [index for receipt in receipts if receipt["event"] == "submitted" for index in receipt["jobs"]]
    assert sorted(map(int, mapped)) == [-1, *range(9)]


def test_submitting_from_inside_a_job_does_not_inherit_its_options(project: Project, fake: FakeSlurm) -> None:
    project.benchmark("a", tasks=2)
    fake.program("sbatch", f'env > "$HERE/env"\n{ACCEPT}\necho $id')
    job = {"SLURM_JOB_ID": "7", "SBATCH_ACCOUNT": "other", "SLURM_CONF": "/etc/slurm.conf", "SLURM_CPUS_PER_TASK": "3"}

    done = project.gym("submit", str(project.write()), env={**fake.env, **job})

    assert done.returncode == 0, done.stderr
    seen = (fake.directory / "env").read_text()
    assert "SLURM_CONF=/etc/slurm.conf" in seen
    assert "SBATCH_ACCOUNT" not in seen
    assert "SLURM_CPUS_PER_TASK" not in seen


def test_without_slurm_nothing_is_created(project: Project, tmp_path: Path) -> None:
    project.benchmark("a", tasks=2)

    done = project.gym("submit", str(project.write()), env={"PATH": str(tmp_path)})

    assert done.returncode == 5
    assert "sbatch" in done.stderr
    assert not project.runs.exists()


def test_a_hanging_scheduler_does_not_hang_status(project: Project, fake: FakeSlurm) -> None:
    project.benchmark("a", tasks=2)
    submit(project, fake)
    fake.program("squeue", "sleep 60")
    fake.program("sacct", "sleep 60")

    done = project.gym("status", str(project.run_dir), env=fake.env, timeout_s=30)

    assert done.returncode == 0
    assert "could not be asked (squeue gave no answer within" in done.stdout

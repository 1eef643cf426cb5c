"""How status finds a run, and what it says of one that is broken."""

from __future__ import annotations

import itertools
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collector.state.coverage import Coverage
from orchestrate.cli import wait
from orchestrate.report.gather import gather
from orchestrate.runs.directory import RunDir
from tests.orchestrate.fake_slurm import FakeSlurm
from tests.orchestrate.project import Project

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path / "user", {"type": "local"})
    project.benchmark("math", tasks=4, shards=2)
    project.submit("--wait", timeout_s=100)
    return project


def test_a_run_is_found_by_path_name_beginning_or_as_the_last_one(project: Project) -> None:
    name = project.run_dir.name

    for argument in ([str(project.run_dir)], [os.path.relpath(project.run_dir, project.root)], [name], [name[:8]], []):
        done = project.gym("status", *argument, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["name"] == name


def test_a_name_that_fits_two_runs_is_not_guessed(project: Project) -> None:
    project.submit("--new", "--wait", timeout_s=100)

    done = project.gym("status", "submit-")

    assert done.returncode == 3
    assert "2 runs fit" in done.stderr


@pytest.mark.parametrize("argument", ["nope", "/", "runs"])
def test_what_is_no_run_is_one_line(project: Project, argument: str) -> None:
    done = project.gym("status", argument)

    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1


def test_a_broken_shard_is_shown_and_the_others_are_counted(project: Project) -> None:
    journal = project.run_dir / "math" / "shards" / "0-of-2" / "rollouts_attempts.jsonl"
    journal.write_bytes(b"garbage\n" + journal.read_bytes())

    done = project.gym("status", str(project.run_dir))

    assert done.returncode == 0
    assert "broken" in done.stdout
    assert "rollouts_attempts.jsonl:1" in done.stdout
    assert "(2/4, bounds " in done.stdout


def test_a_score_without_the_shards_that_cannot_be_read_has_bounds(project: Project) -> None:
    """The same whether a shard is broken or gone; what it held is expected, and unknown."""
    before = project.status()["benchmarks"][0]
    shard = project.run_dir / "math" / "shards" / "0-of-2"
    shard.rename(project.root / "elsewhere")

    done = project.gym("status", str(project.run_dir))
    found = project.status()["benchmarks"][0]

    assert done.returncode == 0
    assert "unknown 2" in done.stdout
    assert (found["measured"], found["expected"], found["coverage"]["expected"]) == (2, 4, 4)
    assert not found["coverage"]["partial"]
    low, high = found["mean_reward_bounds"]
    assert low <= before["mean_reward"] <= high
    assert high - low == 0.5
    assert found["merged_is_older"] is False


def test_a_report_counts_as_a_status_does(project: Project) -> None:
    (project.run_dir / "math" / "shards" / "0-of-2" / "rollouts_attempts.jsonl").write_bytes(b"garbage\n")

    told = Coverage.model_validate(project.status()["benchmarks"][0]["coverage"])
    reported = gather(str(project.run_dir), content=False).benchmarks[0].coverage

    assert told.unfinished == 2
    assert reported == told


def test_a_refused_submission_is_shown_with_its_reason(tmp_path: Path) -> None:
    fake = FakeSlurm(tmp_path / "bin")
    fake.program("sbatch", "echo 'sbatch: error: QOSMaxSubmitJobPerUserLimit' >&2; exit 1")
    project = Project(tmp_path / "user", {"type": "slurm", "walltime": "1:00:00"})
    project.benchmark("math", tasks=4, shards=3)
    project.config["export"] = {"atif": {"agent_version": "1.0.0"}}
    project.gym("submit", str(project.write()), env=fake.env)

    done = project.gym("status", env=fake.env)

    assert "math: shards 0 to 2 not submitted: sbatch: sbatch: error: QOSMaxSubmitJobPerUserLimit" in done.stdout
    assert "3 no job" in done.stdout
    assert "math: export atif not made yet\n" in done.stdout


def test_a_controller_that_hangs_does_not_keep_anybody_waiting(tmp_path: Path) -> None:
    fake = FakeSlurm(tmp_path / "bin")
    project = Project(tmp_path / "user", {"type": "slurm", "walltime": "1:00:00"})
    project.benchmark("math", tasks=4, shards=2)
    project.gym("submit", str(project.write()), env=fake.env)
    fake.program("squeue", "exec sleep 55")
    fake.program("sacct", "exec sleep 55")

    hanging = project.gym("status", env=fake.env)
    fake.program("sacct", "echo '101_0|COMPLETED'; echo '101_1|RUNNING'")
    booked = project.gym("status", env=fake.env)

    assert "could not be asked (squeue gave no answer within 3 s); counts are from the run's own files" in hanging.stdout
    assert "never_dispatched 4" in hanging.stdout
    # Accounting alone knows what has ended.
    assert "1 completed" in booked.stdout


def test_a_job_that_is_gone_is_explained(tmp_path: Path) -> None:
    fake = FakeSlurm(tmp_path / "bin")
    project = Project(tmp_path / "user", {"type": "slurm", "walltime": "1:00:00"})
    project.benchmark("math", tasks=4, shards=2)
    project.gym("submit", str(project.write()), env=fake.env)
    fake.program("squeue", "exit 0")

    done = project.gym("status", env=fake.env)

    assert "2 gone" in done.stdout
    assert "2 unfinished shards have no live job (gone: it ended, or the scheduler has forgotten it)" in done.stdout
    assert f"gym eval logs {project.run_dir.name} --failed" in done.stdout


def test_why_jobs_ended_is_in_the_text_and_in_the_json(tmp_path: Path) -> None:
    """What the scheduler says of each, and what they wrote last; nothing of the kind while they wait or run."""
    fake = FakeSlurm(tmp_path / "bin")
    project = Project(tmp_path / "user", {"type": "slurm", "walltime": "1:00:00"})
    project.benchmark("math", tasks=4, shards=2)
    project.gym("submit", str(project.write()), env=fake.env)
    logs = project.run_dir / "math" / "logs"
    logs.mkdir(exist_ok=True)
    (logs / "job-101_0.log").write_text("gym eval: math shard 0 of 2: the disk is full. Make room.\n")

    def benchmark() -> dict[str, Any]:
        return json.loads(project.gym("status", "--json", env=fake.env).stdout)["benchmarks"][0]

    waiting = benchmark()
    fake.program("squeue", "echo '101_0|TIMEOUT|TimeLimit'; echo '101_1|CANCELLED|None'")
    ended = benchmark()
    text = project.gym("status", env=fake.env).stdout
    (logs / "job-101_1.log").write_text("gym eval: math shard 1 of 2: 2 of 2 rollouts are unfinished (terminated).\n")
    fake.program("squeue", "echo '101_0|TIMEOUT|TimeLimit'; echo '101_1|PENDING|BeginTime'")
    requeued = benchmark()

    assert waiting["job_endings"] == []
    assert requeued["job_endings"] == ended["job_endings"]
    assert ended["job_endings"] == ["math shard 0 of 2: the disk is full. Make room."]
    assert [(s["job_state"], s["detail"]) for s in ended["shards"]] == [("TIMEOUT", "TimeLimit"), ("CANCELLED", "")]
    assert f"math: a job ended: {ended['job_endings'][0]}\n" in text
    assert "1 timeout, 1 cancelled" in text
    assert "TimeLimit" in text


def test_the_table_that_a_wait_ends_with_says_which_answers_were_cut(tmp_path: Path) -> None:
    project = Project(tmp_path / "user", {"type": "local"})
    project.benchmark("math", tasks=4, marks="[[mode: length]]")

    said = project.submit("--wait", timeout_s=100)

    assert "math: 4 answers cut by the token limit" in said


def test_the_age_of_the_information_is_told(project: Project) -> None:
    first = project.status()["benchmarks"][0]["shards"][0]["age_s"]
    time.sleep(1)

    assert project.status()["benchmarks"][0]["shards"][0]["age_s"] >= first + 1


def test_a_plan_that_cannot_be_read_is_one_line(project: Project) -> None:
    plan = project.run_dir / "plan.json"
    plan.unlink()
    plan.mkdir()

    for arguments in (["status", str(project.run_dir)], ["submit", str(project.write())]):
        done = project.gym(*arguments)
        assert done.returncode == 5
        assert f"{plan}: the run's plan cannot be read: Is a directory." in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_plan_of_a_newer_version_is_not_guessed(project: Project) -> None:
    plan = json.loads((project.run_dir / "plan.json").read_text())
    (project.run_dir / "plan.json").write_text(json.dumps({**plan, "schema_version": 2}))

    done = project.gym("status", str(project.run_dir))

    assert done.returncode == 4
    assert "plan format 2 is not supported" in done.stderr


def test_a_wait_lasts_as_long_as_a_finisher_is_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def seen(*, finisher: bool) -> SimpleNamespace:
        is_over = {"is_settled": not finisher, "has_live_jobs": False, "has_live_finisher": finisher}
        return SimpleNamespace(benchmarks=[], scheduler_trouble=None, **is_over)

    def report(_: RunDir) -> SimpleNamespace:
        return next(remaining)

    def pause(_: float) -> None:
        """Seconds pass by ``clock`` alone."""

    looks = [*[seen(finisher=True)] * 4, last := seen(finisher=False)]
    remaining = iter(looks)
    clock = itertools.count(100.0, 60.0)
    monkeypatch.setattr("orchestrate.status.gather.report", report)
    monkeypatch.setattr("orchestrate.status.over.time.monotonic", lambda: next(clock))
    monkeypatch.setattr("orchestrate.cli.wait.time.sleep", pause)

    found: object = wait._until_over(RunDir(tmp_path))  # pyright: ignore[reportPrivateUsage] - what is waited for, without its table

    assert found is last

"""How status finds a run, and what it says of one that is broken."""

from __future__ import annotations

import itertools
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrate.cli import wait
from orchestrate.rundir import RunDir
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
    assert "(2/2)" in done.stdout


def test_the_age_of_the_information_is_told(project: Project) -> None:
    first = project.status()["benchmarks"][0]["shards"][0]["age_s"]
    time.sleep(1)

    assert project.status()["benchmarks"][0]["shards"][0]["age_s"] >= first + 1


def test_a_plan_of_a_newer_version_is_not_guessed(project: Project) -> None:
    plan = json.loads((project.run_dir / "plan.json").read_text())
    (project.run_dir / "plan.json").write_text(json.dumps({**plan, "schema_version": 2}))

    done = project.gym("status", str(project.run_dir))

    assert done.returncode == 4
    assert "plan format 2 is not supported" in done.stderr


def test_a_wait_lasts_as_long_as_a_finisher_is_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def seen(*, finisher: bool) -> SimpleNamespace:
        is_over = {"is_final": not finisher, "has_live_jobs": False, "has_live_finisher": finisher}
        return SimpleNamespace(benchmarks=[], scheduler_trouble=None, **is_over)

    def report(_: RunDir) -> SimpleNamespace:
        return next(remaining)

    looks = [*[seen(finisher=True)] * 4, last := seen(finisher=False)]
    remaining = iter(looks)
    clock = itertools.count(100.0, 60.0)
    monkeypatch.setattr("orchestrate.status.report", report)
    monkeypatch.setattr("orchestrate.cli.wait.time.monotonic", lambda: next(clock))

    found: object = wait._until_over(RunDir(tmp_path), lambda _: None)  # pyright: ignore[reportPrivateUsage] - what is waited for, without its table

    assert found is last

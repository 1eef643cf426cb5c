"""Submissions against a fake Slurm, for tests of faults that people met."""

from __future__ import annotations

from pathlib import Path

from tests.orchestrate.fake_slurm import FakeSlurm
from tests.orchestrate.project import Project


def submit(project: Project, fake: FakeSlurm, *arguments: str, **env: str) -> tuple[int, str]:
    done = project.gym("submit", str(project.write()), *arguments, env={**fake.env, **env})
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def script(project: Project) -> Path:
    return next(path for path in sorted(project.run_dir.glob("*/jobs/*/job.sh")) if "gym-finish" not in path.parent.name)

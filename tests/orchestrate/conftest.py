"""A fake Slurm on the path, and a user's folder that submits to it; modules with others name their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.orchestrate.fake_slurm import FakeSlurm
from tests.orchestrate.project import Project


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    found = FakeSlurm(tmp_path / "bin")
    monkeypatch.setenv("PATH", found.env["PATH"])
    return found


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "user", {"type": "slurm", "walltime": "1:00:00"})

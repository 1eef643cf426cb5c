"""A user's folder for the tests of operating a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.orchestrate.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """On this machine, two jobs at once."""
    return Project(tmp_path / "user", {"type": "local", "max_concurrent": 2})

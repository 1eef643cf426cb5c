"""A submitted run: its benchmarks by plan, its merged score, and the health of its projection, by the run's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.orchestrate.project import Project
from tests.report.test_report_page import words

pytestmark = pytest.mark.timeout(120)


def test_a_submitted_run_is_reported_by_its_name(tmp_path: Path) -> None:
    project = Project(tmp_path / "user", {"type": "local"})
    project.benchmark("math", tasks=4, shards=2)
    project.submit("--wait", timeout_s=100)

    done = project.gym("report", project.run_dir.name[:8], "-o", "page.html")

    assert done.returncode == 0, done.stderr
    text = words((project.root / "page.html").read_text())
    assert "mean reward of 4 of 4 rollouts (100 %) every expected rollout is measured" in text
    assert "merged: 4 rows" in text
    assert "2 sessions on 2 shards; 0 cut off" in text
    assert "0 healthy, 0 unhealthy, 4 unobserved" in text
    assert (project.run_dir / "math" / "rollouts_health.json").is_file()
    assert "health: 0 healthy, 0 unhealthy, 4 unobserved" in project.logs()

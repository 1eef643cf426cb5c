"""One of a thing is not said as many."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrate.counted import counted
from tests.orchestrate.project import Project


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "0 shards"), (1, "1 shard"), (2, "2 shards"), (12345, "12,345 shards")],
    ids=["0", "1", "2", "many"],
)
def test_a_number_has_its_noun(number: int, said: str) -> None:
    assert counted(number, "shard") == said


def test_a_submission_of_one_says_one(tmp_path: Path) -> None:
    project = Project(tmp_path / "user", {"type": "local"})
    project.benchmark("math", tasks=1)

    said = project.submit()
    cancelled = project.gym("cancel").stdout

    assert "math: 1 rollout in 1 shard: 1 submitted" in said
    assert "1 jobs" not in cancelled

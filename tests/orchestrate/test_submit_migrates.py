"""Results whose judge gave no usable answer are tried again when asked, in shards that are final otherwise, too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.collector.shards import rows_of
from tests.orchestrate.project import Project

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A finished run of two shards; the first task's result says that its judge's answer was invalid."""
    project = Project(tmp_path / "user", {"type": "local", "max_concurrent": 2})
    project.benchmark("math", tasks=4, shards=2)
    dataset = Path(project.config["driver"]["benchmarks"]["math"]["run"]["input_jsonl_fpath"])
    rows = rows_of(dataset)
    dataset.write_text("".join(json.dumps({**row, "invalid_judge_response": row is rows[0]}) + "\n" for row in rows))
    project.submit("--wait", timeout_s=100)
    return project


def journals(project: Project) -> list[list[str]]:
    return [[event["event"] for event in rows_of(path)] for path in sorted(project.run_dir.rglob("rollouts_attempts.jsonl"))]


def test_only_the_final_shard_with_such_a_result_gets_a_job(project: Project) -> None:
    assert "2 final" in project.submit("--wait", timeout_s=100)
    project.config["driver"]["benchmarks"]["math"]["run"]["retry"] = {"retry_invalid_judge_responses": True}

    said = project.submit("--wait", timeout_s=100)

    assert "1 final" in said
    assert sorted(events.count("migrated") for events in journals(project)) == [0, 1]
    assert sorted(events.count("session_started") for events in journals(project)) == [1, 2]
    assert [request["task"] for request in project.requests()].count("math-0") == 2
    row = rows_of(project.run_dir / "math" / "rollouts.jsonl")[0]
    assert (row["_ng_task_index"], row["_ng_attempt_index"]) == (0, 1)

"""Benchmarks that are one command, for tests: how one is written, and what a run says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.orchestrate.project import Project

SCORE = """echo '{"reward": 0.25, "solved": 3}' > "$GYM_EVAL_RESULT" """


def without_model(tmp_path: Path) -> Project:
    project = Project(tmp_path / "user", {"type": "local", "max_concurrent": 4})
    project.config["services"] = {}
    del project.config["driver"]["policy_model"]
    return project


def add(project: Project, name: str, command: str | list[str], **settings: Any) -> None:
    project.config["driver"]["benchmarks"][name] = {"command": command, **settings}


def rows_of(project: Project, benchmark: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (project.run_dir / benchmark / "rollouts.jsonl").read_text().splitlines()]


def failures_of(project: Project, benchmark: str) -> list[dict[str, Any]]:
    path = project.run_dir / benchmark / "shards" / "0-of-1" / "rollouts_failures.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def job_pid(project: Project) -> int:
    (job,) = json.loads((project.run_dir / "gym-job.json").read_text())["benchmarks"]
    return int(job["job_id"].split(":")[1])


def states(project: Project) -> dict[str, int]:
    (benchmark,) = project.status()["benchmarks"]
    return {name: count for name, count in benchmark["coverage"]["states"].items() if count}

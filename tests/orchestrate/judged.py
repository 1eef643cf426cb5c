"""A project whose answers are graded by a second service, the judge, with a log of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.orchestrate.project import SERVER, Project

PROMPT = "[[task: judged-{n}]] [[answer: VERDICT: {say}]] {model_answer}"


def with_judge(project: Project, *, tasks: int = 6, **judge: Any) -> Project:
    """A benchmark of two shards whose answers a second service grades, with a log of its own."""
    switches = [f"--{name.replace('_', '-')}={value}" for name, value in judge.items()]
    project.config["services"]["judge"] = {
        **project.service(),
        "command": [
            sys.executable, SERVER, "--port={port}", "--model=judge-model", f"--log={project.root / 'judge.jsonl'}", *switches,
        ],
        "served_model_name": "judge-model",
    }  # fmt: skip
    verifier = {
        "type": "judge", "base_url": "{services.judge.url}", "model": "{services.judge.model}", "prompt": {"user": PROMPT},
    }  # fmt: skip
    project.benchmark("essays", tasks=tasks, shards=2, verifier=verifier)
    dataset = Path(project.config["driver"]["benchmarks"]["essays"]["run"]["input_jsonl_fpath"])
    rows = [json.loads(line) for line in dataset.read_text().splitlines()]
    dataset.write_text(
        "".join(
            json.dumps({**row, "n": n, "say": "correct" if row["grade"] else "incorrect"}) + "\n" for n, row in enumerate(rows)
        )
    )
    return project


def judged(project: Project) -> list[str]:
    """The tasks of all requests at the judge, without those of readiness probes."""
    log = project.root / "judge.jsonl"
    tasks = [json.loads(line)["task"] for line in log.read_text().splitlines()] if log.exists() else []
    return [task for task in tasks if task.startswith("judged-")]

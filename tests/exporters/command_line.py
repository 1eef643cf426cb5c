"""Rows to export, and flags that do it."""

from __future__ import annotations

from pathlib import Path

import orjson


def two_rollouts(folder: Path) -> Path:
    """The path of a file with the rows of two rollouts."""
    row = {
        "_ng_task_index": 0,
        "_ng_rollout_index": 0,
        "response": {"model": "m", "output": [{"type": "message", "content": "4"}]},
    }
    path = folder / "r.jsonl"
    path.write_bytes(orjson.dumps(row) + b"\n" + orjson.dumps({**row, "_ng_task_index": 1}) + b"\n")
    return path


def flags_of(rollouts: Path) -> list[str]:
    """What exports ``rollouts`` to the folder ``o`` beside them."""
    return ["--rollouts", str(rollouts), "--output-dir", str(rollouts.with_name("o")), "--agent-version", "1.0.0"]

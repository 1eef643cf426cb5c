"""Files as NeMo Gym 0.7.0 writes them: rows, failures and inventory, without a manifest."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def row(task: int, repeat: int = 0, reward: Any = 1.0, *, agent: str = "solver", **more: Any) -> dict[str, Any]:
    """A result row; ``reward`` None: it has none."""
    found = {"_ng_task_index": task, "_ng_rollout_index": repeat, "agent_ref": {"name": agent}, **more}
    found.setdefault("response", {"usage": {"input_tokens": 3, "output_tokens": 4}})
    return found if reward is None else {**found, "reward": reward}


def failure(task: int, repeat: int = 0, name: str = "agent_run_error", *, agent: str = "solver", **more: Any) -> dict[str, Any]:
    """A failure row."""
    return {
        "_ng_task_index": task, "_ng_rollout_index": repeat, "agent_ref": {"name": agent}, "_ng_failure_class": name, **more,
    }  # fmt: skip


def asked(task: int, repeat: int = 0, *, agent: str = "solver") -> dict[str, Any]:
    """An inventory row."""
    params = {"input": [{"role": "user", "content": f"{task}?"}]}
    return {
        "_ng_task_index": task, "_ng_rollout_index": repeat, "agent_ref": {"name": agent}, "responses_create_params": params,
    }  # fmt: skip


def lines(rows: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in rows)


def write(
    path: Path,
    results: Iterable[dict[str, Any]],
    *,
    failures: Iterable[dict[str, Any]] | None = None,
    inventory: Iterable[dict[str, Any]] | None = None,
) -> Path:
    """The files beside ``path``; None: the file is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lines(results))
    if failures is not None:
        path.with_name(f"{path.stem}_failures.jsonl").write_bytes(lines(failures))
    if inventory is not None:
        path.with_name(f"{path.stem}_materialized_inputs.jsonl").write_bytes(lines(inventory))
    return path

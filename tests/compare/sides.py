"""Sides of a comparison, written as the metrics file of a run would be."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def write_side(
    path: Path,
    tasks: Mapping[int, Sequence[float]],
    *,
    expected: int | None = -1,
    digest: str = "d" * 64,
    agent: str = "solver",
) -> Path:
    """``tasks`` with their rewards; ``expected`` -1: as many as there are, None: nobody knows."""
    rewards = [reward for task in tasks.values() for reward in task]
    count = len(rewards) if expected == -1 else expected
    total = math.fsum(rewards)
    overall: dict[str, Any] = {"mean/reward": total / len(rewards), "coverage/expected": count, "coverage/scored": len(rewards)}
    if count is not None:
        overall["coverage/reward_lower_bound"] = total / count
        overall["coverage/reward_upper_bound"] = (total + count - len(rewards)) / count
    groups = [{"_ng_task_index": task, "mean/reward": math.fsum(r) / len(r)} for task, r in tasks.items() if r]
    entry = {
        "agent_ref": {"name": agent}, "source_digest": digest, "agent_metrics": overall, "key_metrics": overall,
        "group_level_metrics": groups,
    }  # fmt: skip
    target = path.with_name(f"{path.stem}_aggregate_metrics.json")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps([entry]))
    return path

"""Metrics files whose numbers are none: told by their file and name, never a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collector.errors import CorruptArtifactError
from merge.compare.load import load_side


def entry() -> dict[str, Any]:
    return {
        "agent_ref": {"name": "a"},
        "agent_metrics": {"mean/reward": 0.5, "coverage/expected": 2, "coverage/scored": 2},
        "group_level_metrics": [{"_ng_task_index": 0, "mean/reward": 0.5}, {"_ng_task_index": 1, "mean/reward": 0.5}],
    }


@pytest.mark.parametrize(
    ("change", "told"),
    [
        pytest.param(lambda e: e["agent_metrics"].update({"mean/reward": 10**400}), "mean/reward", id="mean"),
        pytest.param(lambda e: e["group_level_metrics"][1].update({"mean/reward": -(10**400)}), "mean/reward", id="task"),
        pytest.param(lambda e: e["agent_metrics"].update({"coverage/expected": 1e308}), "coverage/expected", id="count"),
        pytest.param(lambda e: e["agent_metrics"].update({"coverage/scored": 10**400}), "coverage/scored", id="endless-count"),
        pytest.param(lambda e: e["agent_metrics"].update({"coverage/scored": -1}), "coverage/scored", id="below-0"),
        pytest.param(lambda e: e["agent_metrics"].update({"coverage/scored": 1.5}), "coverage/scored", id="half"),
    ],
)
def test_a_number_that_is_none_is_told_by_its_name(tmp_path: Path, change: Callable[[dict[str, Any]], None], told: str) -> None:
    path = tmp_path / "r_aggregate_metrics.json"
    path.write_text(json.dumps([entry()]))
    assert load_side(path).expected == 2
    odd = entry()
    change(odd)
    path.write_text(json.dumps([odd]))

    with pytest.raises(CorruptArtifactError, match=f"not a metrics file: {told} is"):
        load_side(path)

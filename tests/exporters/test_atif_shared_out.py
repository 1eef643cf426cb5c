"""An ATIF export shared out among processes: the same folder, the same problems in the same order, and no half file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.merge import jobs

HAS_SEVERAL = len(os.sched_getaffinity(0)) > 1


def row(task: int, **more: Any) -> dict[str, Any]:
    response = {"model": "m", "output": [{"type": "message", "content": f"answer {task} " * 20}]}
    return {"_ng_task_index": task, "_ng_rollout_index": 0, "response": response, "agent_ref": {"name": "a"}, **more}


def rows_file(tmp_path: Path, changed: dict[int, Any]) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"".join(orjson.dumps(changed.get(task, row(task))) + b"\n" for task in range(200)))
    return path


def export(rows: Path, folder: Path, *words: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.exporters.shared_export", str(rows), str(folder), *words]
    done = subprocess.run(command, cwd=jobs.ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("upset", [[], ["killed"]], ids=["calm", "helpers-killed"])
def test_the_folder_is_the_one_that_one_process_makes(upset: list[str], tmp_path: Path) -> None:
    rows = rows_file(tmp_path, {})

    told = export(rows, tmp_path / "several", *upset)
    alone = export(rows, tmp_path / "alone", "alone")

    assert told["state"] == alone["state"] == "succeeded"
    assert (told["others"] > 0) is HAS_SEVERAL
    assert alone["others"] == 0
    assert contents(tmp_path / "several") == contents(tmp_path / "alone")
    assert len(contents(tmp_path / "alone")) == 201


def test_the_problems_are_those_that_one_process_finds_in_their_order(tmp_path: Path) -> None:
    changed = {
        20: row(20, response=None),
        90: row(3),
        91: row(3, response=None),
        150: row(150, agent_ref={"name": "b"}),
        199: [],
    }
    rows = rows_file(tmp_path, changed)

    told = export(rows, tmp_path / "several")
    alone = export(rows, tmp_path / "alone", "alone")

    assert told["said"] == alone["said"]
    places = [line.split(":")[0] for line in told["said"][1:]]
    assert places == ["line 21", "line 91", "line 92", "line 151", "line 200"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.jsonl"]


def test_a_disk_that_is_full_for_a_helper_is_a_failed_result_and_leaves_nothing(tmp_path: Path) -> None:
    told = export(rows_file(tmp_path, {}), tmp_path / "several", "full")

    assert told["state"] == "failed"
    assert "No space left on device" in told["said"][0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.jsonl"]

"""Rows that were aggregated without their inventory are exported on request: how many were expected is told by nobody."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import orjson
import pytest

from collector.artifacts import RunArtifacts
from collector.errors import CorruptArtifactError
from exporters.flatten import flatten_run
from exporters.source import parse_coverage, read_figures
from merge.command import merge_paths
from orchestrate.cli.main import main as gym


@pytest.fixture
def merged(tmp_path: Path) -> Path:
    message = {"type": "message", "role": "assistant", "content": "4"}
    row = {"_ng_rollout_index": 0, "response": {"model": "m", "output": [message]}, "reward": 1.0}
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(b"".join(orjson.dumps({"_ng_task_index": task, **row}) + b"\n" for task in range(3)))
    target = tmp_path / "merged.jsonl"
    merge_paths([rows], target)
    return target


def test_it_is_refused_in_one_true_line(merged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gym(["eval", "export", "csv", str(merged)]) == 1

    said = capsys.readouterr()
    (line,) = (said.out + said.err).splitlines()
    assert "there was no inventory to tell how many rollouts were expected: 3 are completed, 0 are unfinished." in line
    assert "allow_partial=true" in line


def test_it_is_exported_when_that_is_allowed(merged: Path) -> None:
    assert gym(["eval", "export", "csv", str(merged), "+allow_partial=true"]) == 0

    assert len((merged.parent / "merged_table.csv").read_bytes().splitlines()) == 4


def test_a_log_does_not_claim_that_everything_is_in_it(merged: Path) -> None:
    assert gym(["eval", "export", "inspect", str(merged), "+allow_partial=true"]) == 0

    with zipfile.ZipFile(merged.parent / "merged_inspect.eval") as archive:
        header = json.loads(archive.read("header.json"))
    assert header["status"] == "cancelled"
    assert "expected" not in header["results"]["metadata"]["coverage"]


def test_a_tracker_gets_no_number_that_nobody_knows(merged: Path) -> None:
    figures = read_figures(RunArtifacts(merged))
    flat = flatten_run(figures, {})

    assert figures.partial
    assert not figures.coverage.complete
    assert flat.metrics["coverage/measured"] == 3
    assert flat.metrics["coverage/mean_reward"] == 1.0
    unknown = {"coverage/expected", "coverage/mean_reward_lower_bound", "coverage/mean_reward_upper_bound"}
    assert unknown <= flat.omitted.keys()
    assert not unknown & flat.metrics.keys()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"expected": "x"}, "expected: Input should be a valid integer", id="kind"),
        pytest.param({"coverage_known": True}, "expected: Input should be a valid integer", id="null-but-known"),
        pytest.param({"states": {"measured": "x"}}, "states.measured: Input should be a valid integer", id="states"),
        pytest.param({"states": 3}, "states: Input should be a valid dictionary", id="no-states"),
        pytest.param({"expected": 4}, "the states add up to 3, not to 4", id="sum"),
    ],
)
def test_a_damaged_coverage_is_told_in_words_of_its_own(merged: Path, changes: dict[str, Any], reason: str) -> None:
    path = RunArtifacts(merged).coverage
    data = orjson.dumps({**orjson.loads(path.read_bytes()), **changes})

    with pytest.raises(CorruptArtifactError, match="not a coverage file") as raised:
        parse_coverage(data, path)

    assert reason in str(raised.value)
    assert "https://" not in str(raised.value)


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"3"], ids=["empty", "array", "torn", "number"])
def test_what_is_no_object_is_no_coverage(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(CorruptArtifactError, match="not a coverage file"):
        parse_coverage(data, tmp_path / "c.json")

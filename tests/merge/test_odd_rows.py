"""Rows that JSON allows and few readers take: each is merged whole, or refused by its place, and nothing is written then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collector import jsonl
from collector.artifacts import RunArtifacts
from collector.errors import CorruptArtifactError
from collector.formats import rows
from exporters.base import ExportState
from exporters.direct import export_run
from merge.command import merge_paths
from merge.publication.generation import Reporting
from tests.merge.build import answered, fill_all, plan
from tests.merge.legacy_files import asked, failure, lines, row, write


def with_member(member: bytes, task: int = 1) -> bytes:
    return lines([row(task, reward=None)]).rstrip()[:-1] + b", " + member + b"}\n"


def written(directory: Path, line: bytes) -> Path:
    path = write(directory / "r.jsonl", [row(0)])
    path.write_bytes(path.read_bytes() + line)
    return path


def metrics_of(target: Path) -> dict[str, Any]:
    return json.loads(RunArtifacts(target).aggregate.read_bytes())[0]["agent_metrics"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        pytest.param(with_member(b'"reward": 1' + b"0" * 400), r"r\.jsonl:2: .*a reward that no float holds", id="reward"),
        pytest.param(
            with_member(b'"reward": 1, "x": 1e400'), r"r\.jsonl: .*rollout 1-0 at byte \d+ cannot be read", id="number"
        ),
        pytest.param(
            with_member(b'"reward": 1, "x": [1e400], "y": "\\ud800"'), r"r\.jsonl:2: .*infinity", id="number-and-surrogate"
        ),
        pytest.param(with_member(b'"reward": 1', task=-1), r"r\.jsonl:2: .*_ng_task_index", id="task-below-0"),
        pytest.param(with_member(b'"reward": 1', task=1 << 31), r"r\.jsonl:2: .*_ng_task_index", id="task-of-32-bits"),
        pytest.param(with_member(b'"reward": 1', task=1 << 70), r"r\.jsonl:2: .*_ng_task_index", id="task-of-no-bits"),
        pytest.param(lines([row(1, -1)]), r"r\.jsonl:2: .*_ng_rollout_index", id="repeat-below-0"),
        pytest.param(lines([row(0, 1 << 32)]), r"r\.jsonl:2: .*_ng_rollout_index", id="repeat-that-would-be-another-task"),
    ],
)
def test_a_row_that_nobody_could_count_is_refused_by_its_place(tmp_path: Path, line: bytes, told: str) -> None:
    path = written(tmp_path, line)

    with pytest.raises(CorruptArtifactError, match=told) as refusal:
        merge_paths([path], tmp_path / "out.jsonl", allow_partial=True)

    assert refusal.value.exit_code == 4
    assert [file.name for file in tmp_path.iterdir() if file.suffix != ".lock"] == ["r.jsonl"]


@pytest.mark.parametrize("what", ["result", "failure", "inventory"])
def test_a_number_that_is_no_rollout_is_refused_in_every_file(tmp_path: Path, what: str) -> None:
    entries: dict[str, list[dict[str, Any]]] = {"result": [row(0)], "failure": [failure(1)], "inventory": [asked(0), asked(1)]}
    entries[what][-1]["_ng_rollout_index"] = 1 << 32
    path = write(tmp_path / "r.jsonl", entries["result"], failures=entries["failure"], inventory=entries["inventory"])

    with pytest.raises(CorruptArtifactError, match="_ng_rollout_index"):
        merge_paths([path], tmp_path / "out.jsonl", allow_partial=True)


def test_a_number_whose_name_is_no_utf_8_is_a_metric_under_its_escape(tmp_path: Path) -> None:
    """A grader may name a figure so; the merge of its run ended in a TypeError."""
    made = plan(tmp_path, shards=2, tasks=4, row={"k\ud800": 1})
    fill_all(made, lambda task, repeat: answered(extra={"m\udfff": task, "of": f"\ud800{task % 2}", "plain": 1}))

    merge_paths([made.directory], made.merged.rollouts, reporting=Reporting(subset_field="of"))

    metrics = metrics_of(made.merged.rollouts)
    assert metrics["mean/m\\udfff"] == 1.5
    assert metrics["mean/k\\ud800"] == 1
    assert metrics["\\ud8001/pass@1/reward"] == 100
    assert [json.loads(line)["m\udfff"] for line in made.merged.rollouts.read_bytes().splitlines()] == [0, 1, 2, 3]


@pytest.mark.parametrize("member", [b'"k\\ud800": 1', b'"k": {"\\ud800": {"\\udfff": 1}}', b'"response": {"\\ud800": []}'])
def test_the_identity_of_a_row_is_read_whatever_its_other_keys_are_called(member: bytes) -> None:
    """Such a row, recorded, was called broken by the next session."""
    stamp = rows.parse_stamp(with_member(member))

    assert (stamp.task, stamp.repeat) == (1, 0)


def test_tokens_of_an_attempt_that_no_float_holds_are_in_no_sum(tmp_path: Path) -> None:
    """A masked row is read for its cost alone."""
    made = plan(tmp_path, shards=1, tasks=2)
    fill_all(made, lambda task, repeat: answered(masked=task == 0, usage={"input_tokens": 10**400, "output_tokens": 2}))

    merge_paths([made.directory], made.merged.rollouts)

    costs = json.loads(made.merged.aggregate.read_bytes())[0]["perf_summary"]
    assert costs["attempts/output_tokens/total"] == 4
    assert "attempts/input_tokens/total" not in costs


@pytest.mark.parametrize("text", [b"[1e400, 1234567890123456789]", b'["\\ud800", -1e400]'])
def test_a_number_that_no_float_holds_is_refused_whatever_stands_beside_it(text: bytes) -> None:
    with pytest.raises(ValueError, match="infinity"):
        jsonl.loads(text)


@pytest.mark.parametrize(
    ("odd", "key"),
    [
        pytest.param({"agent": "a\ud800"}, "benchmark", id="agent"),
        pytest.param({"name": "a\ud800"}, "failures_by_kind", id="failure-class"),
        pytest.param({"failure_kind": "a\ud800"}, "failures_by_kind", id="failure-kind"),
    ],
)
def test_names_that_are_no_utf_8_are_told_by_their_escapes(tmp_path: Path, odd: dict[str, Any], key: str) -> None:
    path = write(tmp_path / "r.jsonl", [row(0)], failures=[failure(1, _ng_failure_terminal=True, **odd)])

    merge_paths([path], tmp_path / "out.jsonl", allow_partial=True)

    (report,) = (RunArtifacts(target).coverage for target in tmp_path.glob("out*.jsonl"))
    assert "a\\ud800" in str(json.loads(report.read_bytes())[key]).replace("\\\\", "\\")


@pytest.mark.parametrize("exporter", ["inspect", "atif", "csv"])
def test_numbers_beyond_all_floats_are_exported_as_they_are(tmp_path: Path, exporter: str) -> None:
    """As a reward they are no score, and as a moment none."""
    huge = 10**400
    response = {"model": "m", "created_at": huge, "output": [{"type": "message", "role": "assistant", "content": "4"}]}
    path = write(tmp_path / "r.jsonl", [row(0, reward=huge, response=response, x=huge)])
    values = {"agent_version": "1", "session_id": "s"} if exporter == "atif" else {}

    result = export_run(exporter, values, RunArtifacts(path))

    assert result.state is ExportState.SUCCEEDED, result

"""Faults that people met with exporters of other tools, each as it is here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from collector.artifacts import RunArtifacts
from exporters.atif.documents import Document
from exporters.registry import make_exporter
from exporters.source import ExportError, read_figures
from exporters.trackers.child import call
from exporters.trackers.names import ARTIFACT_LONGEST
from exporters.trackers.package import read_package
from exporters.trackers.wandb import WandbExporter
from merge.command import merge_paths
from tests.exporters.made_runs import merged_run
from tests.merge.build import answered, failed, fill_all, plan


def atif(artifacts: RunArtifacts, folder: Path) -> Any:
    return make_exporter("atif", {"output_dirpath": folder, "agent_version": "1.0.0"}, artifacts).export(artifacts)


def test_the_exported_trajectory_is_that_of_the_selected_attempt(tmp_path: Path) -> None:
    made = plan(tmp_path / "b", shards=1, tasks=1)
    fill_all(made, lambda *_: [failed(terminal=False), answered(1.0, text="the second attempt")])
    merge_paths([made.directory], made.merged.rollouts)

    assert atif(made.merged, tmp_path / "merged").is_success
    assert atif(made.shards[0], tmp_path / "single").is_success

    for folder in ("merged", "single"):
        document = Document.parse((tmp_path / folder / "0-0.json").read_bytes())
        assert document.steps[-1].message == "the second attempt"
        assert document.extra is not None
        assert document.extra["gym_eval"]["source"]["attempt_index"] == 1


def test_a_tool_result_without_its_call_is_kept_and_flagged(tmp_path: Path) -> None:
    output = [
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "zz", "output": "lost?"},
    ]
    row = {"_ng_task_index": 0, "_ng_rollout_index": 0, "response": {"model": "m", "output": output}}
    path = tmp_path / "r.jsonl"
    path.write_bytes(orjson.dumps(row) + b"\n")
    artifacts = RunArtifacts(path)

    make_exporter("atif", {"session_id": "007", "agent_version": "1"}, artifacts).export(artifacts)

    document = json.loads((tmp_path / "r_atif" / "0-0.json").read_bytes())
    (result,) = document["steps"][0]["observation"]["results"]
    assert result["content"] == "lost?"
    assert document["steps"][0]["extra"]["gym_eval"]["unanswered_tool_calls"] == ["c1"]
    assert "metrics" not in document["steps"][0]
    assert document["session_id"] == "007"


def test_a_score_is_never_sent_without_its_coverage(tmp_path: Path) -> None:
    artifacts = merged_run(tmp_path / "b")
    alone = RunArtifacts(tmp_path / "alone" / "rollouts.jsonl")
    alone.rollouts.parent.mkdir()
    for path in (artifacts.rollouts, artifacts.aggregate):
        (alone.rollouts.parent / path.name).write_bytes(path.read_bytes())

    with pytest.raises(ExportError, match="a score is never sent without it"):
        read_figures(alone)


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_a_run_of_nobody_is_not_sent(tmp_path: Path, name: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(b'{"_ng_task_index":0,"_ng_rollout_index":0}\n')
    settings = {"mlflow": {"tracking_uri": "http://127.0.0.1:1"}, "wandb": {"project": "p", "mode": "offline"}}

    result = make_exporter(name, settings[name], RunArtifacts(path)).export(RunArtifacts(path))

    assert "the run has no id" in result.message


@pytest.mark.parametrize("benchmark", ["x" * 120, "a/b", "epoch=0", "run:1"])
def test_the_name_of_an_artifact_is_short_and_legal(tmp_path: Path, benchmark: str) -> None:
    artifacts = merged_run(tmp_path / "b", benchmark=benchmark)
    exporter = make_exporter("wandb", {"project": "p", "mode": "offline"}, artifacts)
    assert isinstance(exporter, WandbExporter)

    payload = exporter.payload(read_package(artifacts, with_rollouts=False), 1, tmp_path, tmp_path)

    assert len(payload["artifact"]) <= ARTIFACT_LONGEST
    assert not set(payload["artifact"]) & set("/:=")
    assert payload["name"] == benchmark


def test_the_digest_changes_with_anything_that_is_sent(tmp_path: Path) -> None:
    artifacts = merged_run(tmp_path / "b")
    first = read_package(artifacts, with_rollouts=False)

    assert read_package(artifacts, with_rollouts=False).digest == first.digest
    artifacts.config.write_text("other: 1\n")
    assert read_package(artifacts, with_rollouts=False).digest != first.digest


def test_a_bug_of_a_sender_is_an_exception_with_its_traceback() -> None:
    with pytest.raises(RuntimeError, match="Traceback"):
        call("exporters.trackers.names:no_such_function", {}, timeout_s=30, environ={})


def test_a_sender_that_hangs_is_ended_in_time() -> None:
    with pytest.raises(ExportError, match="did not answer within 1 s"):
        call("time:sleep", 60, timeout_s=1, environ={})  # type: ignore[arg-type]

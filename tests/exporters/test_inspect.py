"""The exporter ``inspect``: a log in the format of inspect_ai, opened by inspect_ai itself where it is installed."""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from collector.artifacts import RunArtifacts
from exporters.inspect.samples import sample_of
from exporters.registry import make_exporter
from tests.exporters.contract import LocalExporterContract
from tests.exporters.made_runs import PROBE, merged_run
from tests.exporters.observed_rows import observed_row
from tests.merge.build import answered
from tests.support.requirements import require


class TestInspect(LocalExporterContract):
    name = "inspect"
    key = "output_fpath"

    def settings(self, tmp_path: Path) -> dict[str, Any]:
        return {"output_fpath": tmp_path / "out" / "log.eval"}


def exported(artifacts: RunArtifacts) -> Path:
    result = make_exporter("inspect", {}, artifacts).export(artifacts)
    assert result.is_success, result.message
    return artifacts.companion("_inspect.eval")


def test_the_header_holds_our_score_and_our_counts(tmp_path: Path) -> None:
    artifacts = merged_run(tmp_path / "b", outcome=lambda task, _: answered(float(task % 2), masked=task == 3))

    with zipfile.ZipFile(exported(artifacts)) as archive:
        header = json.loads(archive.read("header.json"))
        names = archive.namelist()

    coverage = json.loads(artifacts.coverage.read_bytes())
    (score,) = header["results"]["scores"]
    assert score["metrics"]["mean"]["value"] == coverage["mean_reward"]
    assert score["scored_samples"] == coverage["measured"] == 6
    assert score["unscored_samples"] == 2
    assert header["results"]["total_samples"] == coverage["expected"]
    assert header["results"]["metadata"]["coverage"]["masked"] == 2
    assert sum(name.startswith("samples/") for name in names) == 8
    assert header["eval"]["task_args"]["responses_create_params"] == {"max_output_tokens": 512}
    assert PROBE not in json.dumps(header)


def test_a_masked_rollout_is_a_sample_without_a_score() -> None:
    row = {**observed_row(), "mask_sample": True}

    sample = sample_of(row)

    assert sample["scores"] == {}
    assert sample["metadata"]["masked"] is True


def test_a_conversation_keeps_its_tools() -> None:
    sample = sample_of(observed_row())

    roles = [message["role"] for message in sample["messages"]]
    assert roles == ["user", "assistant", "tool"]
    assert sample["messages"][1]["tool_calls"][0]["function"] == "weather"
    assert sample["messages"][2]["content"] == "sunny"
    assert (sample["id"], sample["epoch"]) == (4, 2)


READ = """
import json, sys
from inspect_ai.log import read_eval_log, read_eval_log_sample_summaries
log = read_eval_log(sys.argv[1])
print(json.dumps({
    "status": log.status, "task": log.eval.task, "epochs": log.eval.config.epochs,
    "score": log.results.scores[0].metrics["mean"].value, "scored": log.results.scores[0].scored_samples,
    "samples": len(log.samples), "summaries": len(read_eval_log_sample_summaries(sys.argv[1])),
    "values": sorted(s.scores["reward"].value for s in log.samples if s.scores),
    "answers": sorted({s.output.completion for s in log.samples}),
}))
"""


@pytest.mark.interop
@pytest.mark.timeout(180)
def test_inspect_ai_opens_the_log_and_finds_our_scores(tmp_path: Path) -> None:
    """GYM_EVAL_INSPECT names the Python of an environment with inspect-ai."""
    python = os.environ.get("GYM_EVAL_INSPECT", "")
    require("inspect-ai", [] if python else ["GYM_EVAL_INSPECT"])
    artifacts = merged_run(tmp_path / "b", outcome=lambda task, _: answered(float(task % 2), masked=task == 3))
    path = exported(artifacts)

    done = subprocess.run([python, "-c", READ, str(path)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    read = json.loads(done.stdout.splitlines()[-1])
    coverage = json.loads(artifacts.coverage.read_bytes())
    assert read["score"] == coverage["mean_reward"]
    assert read["scored"] == coverage["measured"]
    assert read["samples"] == read["summaries"] == coverage["completed"] == 8
    assert read["values"] == [0.0, 0.0, 0.0, 0.0, 1.0, 1.0]
    assert (read["status"], read["task"], read["epochs"]) == ("success", "bench", 2)
    assert read["answers"] == ["four"]

"""The exporter ``mlflow`` against a real server: what arrives is the aggregate, number by number, once."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from collector.artifacts import RunArtifacts
from exporters.base import ExportResult
from exporters.flatten import flatten_run
from exporters.registry import make_exporter
from exporters.source import read_figures
from exporters.trackers.child import call
from exporters.trackers.mlflow import MlflowExporter
from exporters.trackers.package import Package, read_config
from merge.publication.receipt import file_sha256
from tests.exporters.contract import ExporterContract
from tests.exporters.made_runs import PROBE, merged_run
from tests.exporters.mlflow_server import MlflowServer, values_of
from tests.exporters.silent_server import silent_server
from tests.merge.build import answered

pytestmark = pytest.mark.timeout(240)


def export(artifacts: RunArtifacts, server: MlflowServer, experiment: str, **settings: Any) -> ExportResult:
    values = {"tracking_uri": server.uri, "experiment_name": experiment, **settings}
    return make_exporter("mlflow", values, artifacts).export(artifacts)


class TestMlflow(ExporterContract):
    name = "mlflow"

    @pytest.fixture(autouse=True)
    def _server(self, mlflow_server: MlflowServer) -> None:
        self.uri = mlflow_server.uri

    def settings(self, tmp_path: Path) -> dict[str, Any]:
        return {"tracking_uri": self.uri, "experiment_name": "contract"}


def test_what_is_read_back_equals_the_aggregate_number_by_number(tmp_path: Path, mlflow_server: MlflowServer) -> None:
    artifacts = merged_run(tmp_path / "b")

    result = export(artifacts, mlflow_server, "numbers")

    assert result.is_success, result.message
    (run,) = mlflow_server.runs("numbers")
    metrics = values_of(run, "metrics")
    entry = orjson.loads(artifacts.aggregate.read_bytes())[0]
    agent = entry["agent_ref"]["name"]
    sent = 0
    for prefix, key in ((agent, "agent_metrics"), (f"key_metrics/{agent}", "key_metrics")):
        for name, value in entry[key].items():
            if isinstance(value, int | float):
                assert metrics[f"{prefix}/{name.replace('@', '_at_').replace('[', '_').replace(']', '_')}"] == value
                sent += 1
    coverage = orjson.loads(artifacts.coverage.read_bytes())
    for state, count in coverage["states"].items():
        assert metrics[f"coverage/{state}"] == count
    assert metrics["coverage/expected"] == coverage["expected"] == 8
    assert metrics["coverage/mean_reward"] == coverage["mean_reward"] == 0.5
    assert sent > 20
    assert run["info"]["status"] == "FINISHED"


def test_settings_and_files_arrive_and_no_secret_does(tmp_path: Path, mlflow_server: MlflowServer) -> None:
    artifacts = merged_run(tmp_path / "b")

    report = tmp_path / "page.html"
    report.write_text("<p>report</p>")

    export(artifacts, mlflow_server, "files", upload_rollouts=True, report_fpath=report)

    (run,) = mlflow_server.runs("files")
    params = values_of(run, "params")
    assert params["responses_create_params.max_output_tokens"] == "512"
    assert params["verifier.type"] == "exact_match"
    assert yaml.safe_load(mlflow_server.artifact(run, "gym_eval/rollouts_config.yaml"))["policy_api_key"] == "**********"
    for path in (artifacts.aggregate, artifacts.coverage, artifacts.rollouts, artifacts.receipt, report):
        assert mlflow_server.artifact(run, f"gym_eval/{path.name}") == path.read_bytes()
    assert PROBE not in json.dumps(run)
    stored = [path for path in mlflow_server.directory.rglob("*") if path.is_file()]
    assert not [path for path in stored if PROBE.encode() in path.read_bytes()]


def test_the_original_of_a_changed_name_is_kept(tmp_path: Path, mlflow_server: MlflowServer) -> None:
    export(merged_run(tmp_path / "b"), mlflow_server, "originals")

    (run,) = mlflow_server.runs("originals")
    kept = [value for key, value in values_of(run, "tags").items() if key.startswith("gym_eval.name.")]
    assert any(value.endswith("= openai_chat/pass@1[avg-of-2]/reward") for value in kept), kept


def test_an_unchanged_run_is_exported_once(tmp_path: Path, mlflow_server: MlflowServer) -> None:
    artifacts = merged_run(tmp_path / "b")
    first = export(artifacts, mlflow_server, "once")

    second = export(artifacts, mlflow_server, "once")

    assert second.is_success
    assert second.message == "already exported"
    assert second.details[0] == first.details[0]
    assert len(mlflow_server.runs("once")) == 1


def test_a_changed_run_is_a_new_version_beside_the_old_one(tmp_path: Path, mlflow_server: MlflowServer) -> None:
    export(merged_run(tmp_path / "a", run_id="r" * 32), mlflow_server, "versions")

    changed = merged_run(tmp_path / "b", run_id="r" * 32, outcome=lambda *_: answered(1.0))
    result = export(changed, mlflow_server, "versions")

    runs = mlflow_server.runs("versions")
    assert sorted(values_of(run, "metrics")["coverage/mean_reward"] for run in runs) == [0.5, 1.0]
    assert any(line.startswith("id: ") and line.endswith("-v2") for line in result.details)


def test_a_changed_run_takes_the_place_of_the_old_one_when_told(tmp_path: Path, mlflow_server: MlflowServer) -> None:
    export(merged_run(tmp_path / "a", run_id="q" * 32), mlflow_server, "replaced")

    export(
        merged_run(tmp_path / "b", run_id="q" * 32, outcome=lambda *_: answered(1.0)), mlflow_server, "replaced", replace=True
    )

    (run,) = mlflow_server.runs("replaced")
    assert values_of(run, "metrics")["coverage/mean_reward"] == 1.0


def test_what_an_interrupted_export_left_is_not_a_second_run(tmp_path: Path, mlflow_server: MlflowServer) -> None:
    artifacts = merged_run(tmp_path / "b")
    export(artifacts, mlflow_server, "interrupted")
    (run,) = mlflow_server.runs("interrupted")
    mlflow_server.post("runs/update", {"run_id": run["info"]["run_id"], "status": "RUNNING"})

    result = export(artifacts, mlflow_server, "interrupted")

    assert result.is_success
    (left,) = mlflow_server.runs("interrupted")
    assert left["info"]["status"] == "FINISHED"
    assert left["info"]["run_id"] != run["info"]["run_id"]


def test_three_requeues_and_an_export_each_make_one_run(tmp_path: Path, mlflow_server: MlflowServer) -> None:
    artifacts = merged_run(tmp_path / "b", benchmark="gpqa/diamond: run 1")

    for _ in range(3):
        assert export(artifacts, mlflow_server, "requeued").is_success

    assert len(mlflow_server.runs("requeued")) == 1


def test_more_settings_and_metrics_than_one_request_takes_arrive_whole(tmp_path: Path, mlflow_server: MlflowServer) -> None:
    params = {f"p{number}": number for number in range(150)}
    artifacts = merged_run(tmp_path / "b", responses_create_params={**params, "instructions": "x" * 10_000})
    entries = orjson.loads(artifacts.aggregate.read_bytes())
    entries[0]["agent_metrics"] |= {f"m/{number}": float(number) for number in range(1200)}
    artifacts.aggregate.write_bytes(orjson.dumps(entries))

    flat = flatten_run(read_figures(artifacts), read_config(artifacts))
    package = Package(
        "bulk-1", "run", "bulk", flat, {artifacts.coverage: file_sha256(artifacts.coverage)}, "d" * 64, partial=False
    )
    exporter = make_exporter("mlflow", {"tracking_uri": mlflow_server.uri, "experiment_name": "bulk"}, artifacts)
    assert isinstance(exporter, MlflowExporter)
    payload = exporter.payload(package, mlflow_server.uri, tmp_path)

    call("exporters.trackers.mlflow_sender:send", payload, timeout_s=120, environ={})

    (run,) = mlflow_server.runs("bulk")
    assert len([key for key in values_of(run, "metrics") if "/m/" in key]) == 1200
    sent = values_of(run, "params")
    assert len([key for key in sent if key.startswith("responses_create_params.p")]) == 150
    assert len(sent["responses_create_params.instructions"]) == 6000
    assert "cut" in sent["responses_create_params.instructions"]
    whole = orjson.loads(mlflow_server.artifact(run, "gym_eval/export.json"))
    assert whole["params"]["responses_create_params.instructions"] == "x" * 10_000


def test_an_unreachable_server_is_a_failure_in_time_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts = merged_run(tmp_path / "b")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        uri = f"http://user:{PROBE}@127.0.0.1:{closed.getsockname()[1]}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    started = time.monotonic()

    result = make_exporter("mlflow", {"request_timeout_s": 2}, artifacts).export(artifacts)

    assert not result.is_success
    assert time.monotonic() - started < 60
    assert PROBE not in "\n".join(result.lines("mlflow"))


def test_a_silent_server_is_a_failure_in_time(tmp_path: Path) -> None:
    artifacts = merged_run(tmp_path / "b")
    started = time.monotonic()

    with silent_server() as uri:
        result = make_exporter("mlflow", {"tracking_uri": uri, "timeout_s": 8}, artifacts).export(artifacts)

    assert "did not answer within 8 s" in result.message
    assert time.monotonic() - started < 30

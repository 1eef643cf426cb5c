"""The exporter ``wandb`` without a network: what ``wandb sync`` would send is the aggregate, number by number."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from collector.artifacts import RunArtifacts
from collector.errors import ConfigError
from exporters.base import ExportResult
from exporters.direct import export_run
from exporters.registry import make_exporter
from tests.exporters.contract import ExporterContract
from tests.exporters.made_runs import PROBE, merged_run
from tests.exporters.silent_server import silent_server
from tests.exporters.wandb_stand_in import WandbStandIn
from tests.merge.build import answered

pytestmark = pytest.mark.timeout(180)

#: Reads a ``.wandb`` file, a LevelDB log of protobuf records, apart from this process and its warnings.
READ = """
import json, struct, sys
from wandb.proto import wandb_internal_pb2 as pb

def records(data):
    place, whole = 7, b""
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        _, size, kind = struct.unpack("<IHB", data[place:place + 7])
        whole += data[place + 7:place + 7 + size]
        place += 7 + size
        if kind in (1, 4):
            yield whole
            whole = b""

found = {"config": {}, "summary": {}, "run": {}, "files": [], "history": 0}
for data in records(open(sys.argv[1], "rb").read()):
    record = pb.Record(); record.ParseFromString(data)
    kind = record.WhichOneof("record_type")
    if kind == "run":
        run = record.run
        found["run"] = {"id": run.run_id, "name": run.display_name, "project": run.project, "host": run.host}
        for item in run.config.update: found["config"][item.key] = json.loads(item.value_json)
    elif kind == "config":
        for item in record.config.update: found["config"][item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
    elif kind == "summary":
        for item in record.summary.update: found["summary"][item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
    elif kind == "history":
        found["history"] += 1
    elif kind == "artifact":
        found["files"] += [entry.path for entry in record.artifact.manifest.contents]
print(json.dumps(found))
"""


def export(artifacts: RunArtifacts, **more: Any) -> ExportResult:
    return make_exporter("wandb", {"project": "p", "mode": "offline", **more}, artifacts).export(artifacts)


def read_back(folder: Path) -> dict[str, Any]:
    (path,) = folder.rglob("run-*.wandb")
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", READ, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


class TestWandb(ExporterContract):
    name = "wandb"

    def settings(self, tmp_path: Path) -> dict[str, Any]:
        return {"project": "p", "mode": "offline", "output_dirpath": tmp_path / "w"}


def test_what_is_read_back_equals_the_aggregate_number_by_number(tmp_path: Path) -> None:
    artifacts = merged_run(tmp_path / "b")

    result = export(artifacts, output_dirpath=tmp_path / "w")

    assert result.is_success, result.message
    sent = read_back(tmp_path / "w")
    entry = orjson.loads(artifacts.aggregate.read_bytes())[0]
    agent = entry["agent_ref"]["name"]
    numbers = {
        f"{prefix}/{name}": value
        for prefix, key in ((agent, "agent_metrics"), (f"key_metrics/{agent}", "key_metrics"))
        for name, value in entry[key].items()
        if isinstance(value, int | float)
    }
    assert len(numbers) > 20
    assert {name: sent["summary"][name] for name in numbers} == numbers
    coverage = orjson.loads(artifacts.coverage.read_bytes())
    assert sent["summary"]["coverage/expected"] == coverage["expected"] == 8
    assert sent["summary"]["coverage/mean_reward"] == coverage["mean_reward"]
    assert sent["config"]["responses_create_params.max_output_tokens"] == "512"
    assert sent["config"]["gym_eval"]["benchmark"] == "bench"


def test_no_secret_and_nothing_of_this_machine_is_in_the_folder(tmp_path: Path) -> None:
    export(merged_run(tmp_path / "b"), output_dirpath=tmp_path / "w", upload_rollouts=True)

    files = [path for path in (tmp_path / "w").rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert PROBE.encode() not in path.read_bytes(), path
    assert read_back(tmp_path / "w")["run"]["host"] == ""
    assert not list((tmp_path / "w").rglob("wandb-metadata.json"))


def test_a_report_is_sent_on_request_and_one_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    artifacts, report = merged_run(tmp_path / "b"), tmp_path / "page.html"
    refused = export(artifacts, output_dirpath=tmp_path / "w", report_fpath=report)
    report.write_text("<p>the report of this run</p>")

    sent = export(artifacts, output_dirpath=tmp_path / "w", report_fpath=report)

    assert not refused.is_success
    assert "there is no such report" in refused.message
    assert sent.is_success, sent.message
    held = [path for path in (tmp_path / "w").rglob("*") if path.is_file() and b"the report of this run" in path.read_bytes()]
    assert held


def test_repeats_and_requeues_are_one_run(tmp_path: Path) -> None:
    artifacts = merged_run(tmp_path / "b", benchmark="gpqa/diamond: epoch=0 " + "x" * 120)

    results = [export(artifacts, output_dirpath=tmp_path / "w") for _ in range(3)]

    assert [result.message for result in results] == ["", "already exported", "already exported"], results
    (path,) = (tmp_path / "w").rglob("run-*.wandb")
    identity = read_back(tmp_path / "w")["run"]["id"]
    assert identity in path.name
    assert len(identity) <= 64
    assert not set(identity) & set(":;,#?/'")


def test_changed_results_are_a_new_version(tmp_path: Path) -> None:
    export(merged_run(tmp_path / "a", run_id="r" * 32), output_dirpath=tmp_path / "w")

    changed = merged_run(tmp_path / "b", run_id="r" * 32, outcome=lambda *_: answered(1.0))
    result = export(changed, output_dirpath=tmp_path / "w")

    assert result.details[0].endswith("-v2")
    assert len(list((tmp_path / "w").rglob("run-*.wandb"))) == 2


@pytest.mark.parametrize("project", ["a/b", "a:b", "a#b", "a?b", "a%b", "a\\b", "x" * 129])
def test_a_project_that_wandb_refuses_is_refused_before_anything_is_sent(tmp_path: Path, project: str) -> None:
    with pytest.raises(ConfigError, match=r"export\.wandb\.project"):
        make_exporter("wandb", {"project": project}, RunArtifacts(tmp_path / "r.jsonl"))


def test_without_a_key_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))

    result = export(merged_run(tmp_path / "b"), mode="online")

    assert "Set WANDB_API_KEY, or mode=offline" in result.message


def test_a_silent_server_is_a_failure_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    artifacts = merged_run(tmp_path / "b")
    started = time.monotonic()

    with silent_server() as uri:
        result = export(artifacts, mode="online", base_url=uri, timeout_s=10, request_timeout_s=3)

    assert not result.is_success
    assert time.monotonic() - started < 40


def test_what_waits_is_whole_in_its_folder_and_what_ended_exports_left_is_gone(tmp_path: Path) -> None:
    artifacts = merged_run(tmp_path / "b")
    export(artifacts, output_dirpath=tmp_path / "w")
    (first,) = (path for path in (tmp_path / "w").iterdir() if path.is_dir())
    half = first.with_name(first.name[:-8] + "0" * 8)
    half.mkdir()
    (tmp_path / "w" / "mine").mkdir()

    export(artifacts, output_dirpath=tmp_path / "w", project="q")

    folders = sorted(path.name for path in (tmp_path / "w").iterdir() if path.is_dir())
    assert len(folders) == 3
    assert {first.name, "mine"} < set(folders)
    staged = {path.read_bytes() for path in first.rglob("staging/*")}
    assert {path.read_bytes() for path in (artifacts.coverage, artifacts.aggregate, artifacts.config)} < staged


def test_a_folder_that_was_removed_is_made_again(tmp_path: Path) -> None:
    artifacts = merged_run(tmp_path / "b")
    first = export_run("wandb", {"project": "p", "mode": "offline"}, artifacts)
    (folder,) = (path for path in (tmp_path / "b" / "rollouts_wandb").iterdir() if path.is_dir())
    shutil.rmtree(folder)

    again = export_run("wandb", {"project": "p", "mode": "offline"}, artifacts)

    assert (first.message, again.message) == ("", "")
    assert first.details[0] == again.details[0]


def test_what_waits_can_be_sent_by_wandb_itself(tmp_path: Path) -> None:
    artifacts = merged_run(tmp_path / "b")
    export(artifacts, output_dirpath=tmp_path / "w")
    (folder,) = (tmp_path / "w").rglob("offline-run-*")

    with WandbStandIn() as server:
        environ = {**os.environ, "WANDB_API_KEY": "k" * 40, "WANDB_BASE_URL": server.uri, "HOME": str(tmp_path / "other")}
        command = [sys.executable, "-m", "wandb", "sync", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, env=environ, cwd=tmp_path, timeout=120, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = server.runs.values()
    assert run.summary["coverage/expected"] == 8
    assert server.artifacts[0].files["rollouts_coverage.json"] == artifacts.coverage.read_bytes()


def test_half_of_an_export_is_not_left_to_be_sent(tmp_path: Path) -> None:
    result = export(merged_run(tmp_path / "b"), output_dirpath=tmp_path / "w", timeout_s=0.2)

    assert "did not answer within 0.2 s" in result.message
    assert list((tmp_path / "w").iterdir()) == []

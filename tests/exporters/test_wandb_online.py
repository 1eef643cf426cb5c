"""The exporter ``wandb`` with its real client against a stand-in of the server: what arrives, and when that may be said."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from collector.artifacts import RunArtifacts
from collector.errors import ConfigError
from exporters.base import ExportResult, ExportState
from exporters.direct import export_run
from exporters.registry import make_exporter
from tests.exporters.made_runs import PROBE, merged_run
from tests.exporters.wandb_stand_in import Fault, Request, WandbStandIn
from tests.merge.build import answered

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]

KEY = "k" * 40
JSON = {"Content-Type": "application/json"}


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.delenv("WANDB_BASE_URL", raising=False)


def export(artifacts: RunArtifacts, server: WandbStandIn, **more: Any) -> ExportResult:
    settings = {"project": "p", "base_url": server.uri, "timeout_s": 60, "request_timeout_s": 4, **more}
    return export_run("wandb", settings, artifacts)


def first(count: int, does: Callable[[Request], bool], status: int = 500) -> Fault:
    """``count`` requests of a kind are answered by ``status``, the next ones as they should be."""
    left = [count]

    def fault(request: Request) -> tuple[int, dict[str, str], bytes] | None:
        if not does(request) or not left[0]:
            return None
        left[0] -= 1
        return status, JSON, b"{}"

    return fault


def is_upload(request: Request) -> bool:
    return request.method == "PUT"


def is_stream(request: Request) -> bool:
    return request.path.endswith("/file_stream")


def test_what_arrives_is_the_aggregate_number_by_number_with_its_files(tmp_path: Path) -> None:
    artifacts = merged_run(tmp_path / "b")

    with WandbStandIn() as server:
        result = export(artifacts, server, upload_rollouts=True)

    assert result.is_success, result.message
    assert server.unknown == []
    ((name, run),) = server.runs.items()
    entry = orjson.loads(artifacts.aggregate.read_bytes())[0]
    agent = entry["agent_ref"]["name"]
    numbers = {f"{agent}/{key}": value for key, value in entry["agent_metrics"].items() if isinstance(value, int | float)}
    assert len(numbers) > 20
    assert {key: run.summary[key] for key in numbers} == numbers
    assert run.summary["coverage/expected"] == 8
    assert run.config["gym_eval"]["digest"] == result.evidence
    assert run.is_finished
    assert result.details[:2] == (f"id: {name}", f"address: {server.uri}/team/p/runs/{name}")
    (artifact,) = server.artifacts
    assert artifact.state == "COMMITTED"
    assert artifact.files["rollouts.jsonl"] == artifacts.rollouts.read_bytes()
    assert artifact.files["rollouts_coverage.json"] == artifacts.coverage.read_bytes()


def test_no_secret_and_nothing_of_this_machine_is_sent(tmp_path: Path) -> None:
    artifacts = merged_run(tmp_path / "b")

    with WandbStandIn() as server:
        assert export(artifacts, server, upload_rollouts=True).is_success

    sent = server.sent()
    assert b"coverage/expected" in sent
    for word in (PROBE, KEY, str(tmp_path), str(Path.home() / ".local"), "requirements.txt"):
        assert word.encode() not in sent, word
    # A host's name may be two letters, which ids and encoded bytes hold by chance: a value of its own is what counts.
    name = re.escape(os.uname().nodename.encode())
    assert not re.search(rb"(?<![\w+/=.-])" + name + rb"(?![\w+/=.-])", sent)
    assert set(server.run_files) == {"config.yaml", "wandb-summary.json"}


def test_an_unchanged_run_is_sent_once_and_a_changed_one_is_a_version_beside_it(tmp_path: Path) -> None:
    artifacts = merged_run(tmp_path / "a", run_id="r" * 32)
    with WandbStandIn() as server:
        export(artifacts, server, output_dirpath=tmp_path / "w")
        asked = len(server.requests)

        again = export(artifacts, server, output_dirpath=tmp_path / "w")
        asked_again = len(server.requests)
        changed = merged_run(tmp_path / "b", run_id="r" * 32, outcome=lambda *_: answered(1.0))
        other = export(changed, server, output_dirpath=tmp_path / "w")

    assert again.message == "already exported"
    assert asked_again == asked
    assert [name.endswith("-v2") for name in server.runs] == [False, True]
    assert other.details[0].endswith("-v2")


def test_a_changed_run_takes_the_place_of_the_old_one_when_told(tmp_path: Path) -> None:
    with WandbStandIn() as server:
        export(merged_run(tmp_path / "a", run_id="r" * 32), server, output_dirpath=tmp_path / "w")
        changed = merged_run(tmp_path / "b", run_id="r" * 32, outcome=lambda *_: answered(1.0))

        assert export(changed, server, output_dirpath=tmp_path / "w", replace=True).is_success

    (run,) = server.runs.values()
    assert run.summary["coverage/mean_reward"] == 1.0


def test_what_waits_offline_or_stands_on_another_server_or_project_is_not_there_yet(tmp_path: Path) -> None:
    artifacts = merged_run(tmp_path / "b")
    with WandbStandIn() as one, WandbStandIn() as other:
        results = [
            export(artifacts, one, mode="offline"),
            export(artifacts, one),
            export(artifacts, one, project="q"),
            export(artifacts, other),
        ]

    assert [(result.state.value, result.message) for result in results] == [("succeeded", "")] * 4
    assert len({result.details[0] for result in results}) == 1
    assert len(one.artifacts) == 2
    assert len(other.artifacts) == 1


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(first(2, is_upload), id="two-uploads-fail"),
        pytest.param(first(2, is_stream), id="two-parts-of-the-stream-fail"),
        pytest.param(lambda request: time.sleep(6) if request.path.endswith("export.json") else None, id="a-slow-upload"),
    ],
)
def test_a_server_that_recovers_has_it_all_in_the_end(fault: Fault, tmp_path: Path) -> None:
    artifacts = merged_run(tmp_path / "b")

    with WandbStandIn(fault) as server:
        result = export(artifacts, server)

    assert result.is_success, result.message
    assert len(server.artifacts[0].files) == 5
    assert next(iter(server.runs.values())).summary["coverage/expected"] == 8


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        pytest.param(
            lambda r: (404, JSON, b"{}") if is_stream(r) else None, "does not show what was sent", id="refused-figures"
        ),
        pytest.param(lambda r: (200, JSON, b"{}") if is_stream(r) else None, "does not show what was sent", id="lost-figures"),
        pytest.param(lambda r: (500, JSON, b"{}") if is_stream(r) else None, "did not answer within", id="broken-stream"),
        pytest.param(lambda r: (403, {}, b"") if is_upload(r) else None, "have failed", id="refused-files"),
        pytest.param(lambda r: time.sleep(60) if is_upload(r) else None, "did not answer within", id="silent-upload"),
        pytest.param(
            lambda r: (200, JSON, b'{"errors":[{"message":"no quota"}]}') if r.operation == "CommitArtifact" else None,
            "did not answer within|no quota",
            id="refused-commit",
        ),
        pytest.param(lambda _: (500, JSON, b"{}"), "500", id="broken-server"),
        pytest.param(lambda _: (401, JSON, b"{}"), "401", id="wrong-key"),
        pytest.param(lambda _: (200, {}, b"<html>log in</html>"), "invalid character", id="a-page-of-a-proxy"),
        pytest.param(lambda r: (302, {"Location": "/in"}, b"") if r.operation else None, "404", id="a-redirect"),
        pytest.param(lambda _: (200, JSON, b"[]"), "unmarshal", id="another-program"),
        pytest.param(
            lambda r: (200, JSON, b'{"data":{}}') if r.operation == "CreateRunFiles" else None,
            "HandleAbandoned",
            id="lost-client",
        ),
        pytest.param(
            lambda r: (200, JSON, b'{"data":{"project":{"run":null}}}') if r.operation == "Run" else None,
            "not find",
            id="no-run",
        ),
    ],
)
def test_only_what_is_confirmed_has_succeeded_and_the_rest_has_failed_in_time(
    fault: Fault, reason: str, tmp_path: Path
) -> None:
    artifacts = merged_run(tmp_path / "b")
    started = time.monotonic()

    with WandbStandIn(fault) as server:
        result = export(artifacts, server, timeout_s=12)

    assert result.state is ExportState.FAILED
    assert any(word in result.message for word in reason.split("|")), result.message
    assert time.monotonic() - started < 40
    assert KEY not in result.message
    assert [path.name for path in (artifacts.rollouts.parent / "rollouts_wandb").iterdir()] == []


def test_an_address_with_a_login_is_refused_unread_and_one_of_the_environment_is_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts = merged_run(tmp_path / "b")
    with pytest.raises(ConfigError) as refused:
        make_exporter("wandb", {"project": "p", "base_url": f"http://me:{PROBE}@h"}, artifacts)
    monkeypatch.setenv("WANDB_BASE_URL", f"http://me:{PROBE}@127.0.0.1:9")

    result = export_run("wandb", {"project": "p", "timeout_s": 20, "request_timeout_s": 2}, artifacts)

    assert result.state is ExportState.FAILED
    assert PROBE not in str(refused.value)
    assert PROBE not in "\n".join(result.lines("wandb")) + artifacts.exports.read_text()


def test_home_is_not_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").write_text("a file, where nothing can be made")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    with WandbStandIn() as server:
        online = export(merged_run(tmp_path / "a"), server)
        offline = export(merged_run(tmp_path / "b"), server, mode="offline")

    assert online.is_success, online.message
    assert offline.is_success, offline.message


SCRIPT = """
import sys
from pathlib import Path
from collector.artifacts import RunArtifacts
from exporters.direct import export_run
values = {"project": "p", "base_url": sys.argv[2], "timeout_s": 60, "request_timeout_s": 10}
result = export_run("wandb", values, RunArtifacts(Path(sys.argv[1])))
print(result.state.value, result.message)
"""


def started(artifacts: RunArtifacts, server: WandbStandIn) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT, str(artifacts.rollouts), server.uri]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(Path.cwd())})


def test_two_at_once_are_one_export(tmp_path: Path) -> None:
    artifacts = merged_run(tmp_path / "b")

    with WandbStandIn() as server:
        both = [started(artifacts, server) for _ in range(2)]
        said = sorted(process.communicate(timeout=120)[0].strip() for process in both)

    assert said == ["succeeded", "succeeded already exported"]
    assert len(server.artifacts) == 1


def test_an_export_that_is_killed_leaves_nobody_at_work_and_the_next_one_is_the_only_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts = merged_run(tmp_path / "b")
    stalled = True
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr(tempfile, "tempdir", None)

    with WandbStandIn(lambda request: time.sleep(60) if is_upload(request) and stalled else None) as server:
        process = started(artifacts, server)
        while not any(is_upload(request) for request in server.requests):
            assert process.poll() is None
            time.sleep(0.05)
        workers = _below(process.pid)
        command_lines = b"".join(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in workers)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        deadline = time.monotonic() + 20
        while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < deadline:
            time.sleep(0.05)
        left = [pid for pid in workers if Path(f"/proc/{pid}").exists()]
        abandoned = [path for path in scratch.glob("gym-eval-*") if path.is_dir()]
        stalled = False
        result = export(artifacts, server)

    assert len(workers) >= 2
    assert left == []
    assert len(abandoned) == 1
    assert not list(scratch.glob("gym-eval-*"))
    assert KEY.encode() not in command_lines
    assert result.is_success, result.message
    assert len(server.runs) == 1


def _below(pid: int) -> list[int]:
    children = [int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]
    return [*children, *(pid for child in children for pid in _below(child))]

"""W&B while its server fails, two export at once, or one is killed: only what is confirmed has succeeded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from collector.artifacts import RunArtifacts
from exporters.base import ExportState
from tests.exporters.made_runs import merged_run
from tests.exporters.wandb_export import KEY, export
from tests.exporters.wandb_stand_in import Fault, Request, WandbStandIn

JSON = {"Content-Type": "application/json"}


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.delenv("WANDB_BASE_URL", raising=False)


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

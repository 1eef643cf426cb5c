"""The exporter ``mlflow`` when something goes wrong: odd answers, others at work at the same time, and crashes between two steps."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from collector.artifacts import RunArtifacts
from collector.errors import ConfigError
from exporters.base import ExportState
from exporters.direct import export_run
from exporters.registry import make_exporter
from exporters.trackers.mlflow import MlflowExporter
from exporters.trackers.mlflow_sender import _Sending
from exporters.trackers.package import read_package
from exporters.trackers.sender import Refused
from tests.exporters.made_runs import PROBE, merged_run
from tests.exporters.mlflow_server import MlflowServer, values_of
from tests.merge.build import answered

pytestmark = [pytest.mark.timeout(240), pytest.mark.slow]


@contextmanager
def always(status: int, headers: dict[str, str], body: bytes) -> Iterator[str]:
    """The address of a server that has one answer."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        pytest.param(200, {}, b"{}", id="no-ids"),
        pytest.param(200, {}, b"[]", id="a-list"),
        pytest.param(200, {}, b"null", id="null"),
        pytest.param(200, {"Content-Type": "text/html"}, b"<html>log in</html>", id="a-page-of-a-proxy"),
        pytest.param(200, {}, b"\xff\xfe\0", id="no-text"),
        pytest.param(500, {}, b"{}", id="broken"),
        pytest.param(302, {"Location": "/in"}, b"", id="a-redirect-to-a-redirect"),
        pytest.param(
            403,
            {},
            f'{{"error_code":"PERMISSION_DENIED","message":"{PROBE} is no token, pass%2Dw0rd no password"}}'.encode(),
            id="quoting",
        ),
    ],
)
def test_whatever_a_server_answers_is_a_failure_that_quotes_no_credential(
    status: int, headers: dict[str, str], body: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts = merged_run(tmp_path / "b")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", PROBE)

    with always(status, headers, body) as place:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://somebody:pass%2Dw0rd@{place}")
        result = export_run("mlflow", {"timeout_s": 60, "request_timeout_s": 3}, artifacts)

    assert result.state is ExportState.FAILED
    assert place in result.message
    told = "\n".join(result.lines("mlflow")) + artifacts.exports.read_text()
    for secret in (PROBE, "pass-w0rd", "pass%2Dw0rd"):
        assert secret not in told


def test_an_address_with_a_login_is_refused_and_not_shown(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"export\.mlflow\.tracking_uri: must not carry a user, a password") as refused:
        make_exporter("mlflow", {"tracking_uri": f"http://me:{PROBE}@h"}, RunArtifacts(tmp_path / "r.jsonl"))

    assert PROBE not in str(refused.value)


def payload_of(artifacts: RunArtifacts, server: MlflowServer, **settings: Any) -> dict[str, Any]:
    exporter = make_exporter("mlflow", {"tracking_uri": server.uri, **settings}, artifacts)
    assert isinstance(exporter, MlflowExporter)
    return exporter.payload(read_package(artifacts, with_rollouts=False), server.uri, artifacts.rollouts.parent)


def client_of(server: MlflowServer) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(server.uri)


def test_an_experiment_that_another_export_makes_meanwhile_is_used(tmp_path: Path, mlflow_server: MlflowServer) -> None:
    payload = payload_of(merged_run(tmp_path / "b"), mlflow_server, experiment_name="race")
    client = client_of(mlflow_server)
    look = client.get_experiment_by_name

    def look_too_early(name: str) -> Any:
        client.get_experiment_by_name = look
        client_of(mlflow_server).create_experiment(name)

    client.get_experiment_by_name = look_too_early

    _Sending(client, payload).send()

    assert len(mlflow_server.runs("race")) == 1


def test_a_crash_before_the_old_runs_are_deleted_is_made_good_by_the_next_export(
    tmp_path: Path, mlflow_server: MlflowServer
) -> None:
    first = payload_of(merged_run(tmp_path / "a", run_id="c" * 32), mlflow_server, experiment_name="crash")
    _Sending(client_of(mlflow_server), first).send()
    changed = merged_run(tmp_path / "b", run_id="c" * 32, outcome=lambda *_: answered(1.0))
    second = payload_of(changed, mlflow_server, experiment_name="crash", replace=True)
    killed = client_of(mlflow_server)
    killed.delete_run = lambda _: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        _Sending(killed, second).send()

    assert _Sending(client_of(mlflow_server), second).send()["is_unchanged"]

    (run,) = mlflow_server.runs("crash")
    assert values_of(run, "metrics")["coverage/mean_reward"] == 1.0


def test_no_two_versions_have_one_id_whatever_was_deleted(tmp_path: Path, mlflow_server: MlflowServer) -> None:
    ids: list[str] = []
    for number in range(4):
        artifacts = merged_run(tmp_path / str(number), run_id="d" * 32, outcome=lambda *_, n=number: answered(n / 10))
        if number == 3:
            gone = next(run for run in mlflow_server.runs("gaps") if values_of(run, "tags")["gym_eval.id"] == ids[0])
            client_of(mlflow_server).delete_run(gone["info"]["run_id"])
        ids.append(
            _Sending(client_of(mlflow_server), payload_of(artifacts, mlflow_server, experiment_name="gaps")).send()["id"]
        )

    assert [name.rsplit("-v", 1)[-1] for name in ids[1:]] == ["2", "3", "4"]
    assert len({values_of(run, "tags")["gym_eval.id"] for run in mlflow_server.runs("gaps")}) == 3


@pytest.mark.parametrize(
    ("kind", "key"), [("metrics", "coverage/expected"), ("tags", "gym_eval.benchmark"), ("params", "verifier.type")]
)
def test_what_the_server_lost_has_not_arrived(kind: str, key: str, tmp_path: Path, mlflow_server: MlflowServer) -> None:
    client = client_of(mlflow_server)
    look = client.get_run

    def forgetful(run_id: str) -> Any:
        run = look(run_id)
        del getattr(run.data, kind)[key]
        return run

    client.get_run = forgetful
    sending = _Sending(client, payload_of(merged_run(tmp_path / "b"), mlflow_server, experiment_name=f"lost-{kind}"))

    with pytest.raises(Refused, match=f"does not hold what was sent: {key}"):
        sending.send()

    (run,) = mlflow_server.runs(f"lost-{kind}")
    assert run["info"]["status"] == "RUNNING"


def test_a_file_that_changes_while_it_is_sent_is_no_export(tmp_path: Path, mlflow_server: MlflowServer) -> None:
    artifacts = merged_run(tmp_path / "b")
    payload = payload_of(artifacts, mlflow_server, experiment_name="changing")
    artifacts.config.write_bytes(b"# another\n" + artifacts.config.read_bytes()[10:])

    with pytest.raises(Refused, match="was changed while it was sent"):
        _Sending(client_of(mlflow_server), payload).send()


SCRIPT = """
import sys
from pathlib import Path
from collector.artifacts import RunArtifacts
from exporters.direct import export_run
values = {"tracking_uri": sys.argv[2], **({"experiment_name": sys.argv[3]} if len(sys.argv) > 3 else {})}
print(export_run("mlflow", values, RunArtifacts(Path(sys.argv[1]))).lines("mlflow")[0])
"""


def test_two_at_once_to_one_experiment_are_one_run_however_it_is_named(tmp_path: Path, mlflow_server: MlflowServer) -> None:
    artifacts = merged_run(tmp_path / "b", benchmark="twice")
    command = [sys.executable, "-c", SCRIPT, str(artifacts.rollouts)]
    environ = {**os.environ, "PYTHONPATH": str(Path.cwd())}

    both = [
        subprocess.Popen([*command, *more], stdout=subprocess.PIPE, text=True, env=environ)
        for more in ([mlflow_server.uri], [mlflow_server.uri + "/", "twice"])
    ]
    said = [process.communicate(timeout=120)[0].strip() for process in both]

    assert said == ["Export mlflow: succeeded"] * 2
    assert len(mlflow_server.runs("twice")) == 1

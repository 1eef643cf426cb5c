"""A real ``mlflow server`` on loopback with a database of its own, and its API as a reader sees it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

_STARTS_WITHIN_S = 90.0


class MlflowServer:
    """Started on entry, ended with all its workers on exit."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        store = [
            "--backend-store-uri",
            f"sqlite:///{self.directory}/m.db",
            "--artifacts-destination",
            str(self.directory / "a"),
        ]
        self._log = (self.directory / "server.log").open("wb")
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "mlflow",
                "server",
                "--host",
                "127.0.0.1",
                "--port",
                str(self.port),
                "--workers",
                "1",
                *store,
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"},
            cwd=self.directory,
            start_new_session=True,
        )
        deadline = time.monotonic() + _STARTS_WITHIN_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                urllib.request.urlopen(f"{self.uri}/health", timeout=2).close()
            except OSError:
                time.sleep(0.2)
            else:
                return self
        self.__exit__()
        raise RuntimeError((self.directory / "server.log").read_text()[-3000:])

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The answer of an API call."""
        request = urllib.request.Request(
            f"{self.uri}/api/2.0/mlflow/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)

    def get(self, path: str) -> Any:
        """The answer of an API call."""
        with urllib.request.urlopen(f"{self.uri}/api/2.0/{path}", timeout=30) as response:
            return json.load(response)

    def runs(self, experiment: str) -> list[dict[str, Any]]:
        """The runs of an experiment that are not deleted."""
        try:
            found = self.get(f"mlflow/experiments/get-by-name?experiment_name={experiment}")
        except urllib.error.HTTPError:
            return []
        return self.post("runs/search", {"experiment_ids": [found["experiment"]["experiment_id"]]}).get("runs", [])

    def artifact(self, run: dict[str, Any], name: str) -> bytes:
        """The bytes of one file of a run."""
        place = run["info"]["artifact_uri"].removeprefix("mlflow-artifacts:/").lstrip("/")
        with urllib.request.urlopen(f"{self.uri}/api/2.0/mlflow-artifacts/artifacts/{place}/{name}", timeout=30) as response:
            return response.read()


def values_of(run: dict[str, Any], kind: str) -> dict[str, Any]:
    """Metrics, params or tags of a run by key."""
    return {entry["key"]: entry["value"] for entry in run["data"].get(kind, [])}

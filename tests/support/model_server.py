"""A deterministic model server as a process: ``ModelServer`` for tests, or ``python tests/support/model_server.py --help``.

It speaks ``/health``, ``/v1/models``, ``/v1/chat/completions``, ``/v1/responses``, and for tests ``/stats`` (counts) and
``/control`` (POST ``{"mode": "503 x1"}``). The marks a prompt may carry are described in ``model_replies``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class ModelServer:
    """One server process and its request log; start, kill and start again on the same port and log.

    Keyword ``options`` are the program's switches with underscores: ``ModelServer(tmp_path, mode="503 x1", delay=0.1)``.
    """

    def __init__(self, directory: Path, *, port: int = 0, model: str = "test-model", **options: Any) -> None:
        self.port = port
        self.model = model
        self.log = directory / "requests.jsonl"
        self.output = directory / "model_server.log"
        self._options = {"model": model, "log": self.log} | options
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def process(self) -> subprocess.Popen[str]:
        """The server's process; RuntimeError before the first start."""
        if self._process is None:
            raise RuntimeError("the model server was not started")
        return self._process

    def start(self) -> None:
        """Start the process and return when it listens; RuntimeError with its output when it ended instead."""
        switches = [f"--{name.replace('_', '-')}={value}" for name, value in self._options.items() if value is not None]
        with self.output.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, __file__, f"--port={self.port}", "--end-with-stdin", *switches],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            self.kill()
            raise RuntimeError(f"the model server did not start: {self.output.read_text(encoding='utf-8')}")
        self.port = int(line.split()[-1])

    def kill(self) -> None:
        """End the process with SIGKILL and wait for it; a second call changes nothing."""
        self.process.kill()
        self.process.wait()
        for stream in filter(None, (self.process.stdin, self.process.stdout)):
            stream.close()

    def wait(self, timeout_s: float = 10) -> int:
        """The exit code of a server that ends by itself."""
        return self.process.wait(timeout_s)

    def stats(self) -> dict[str, Any]:
        """The counts of the living server: requests, total, tasks, by_task, in_flight, max_in_flight."""
        return self._ask("/stats")

    def set_mode(self, mode: str) -> None:
        """Change the mode of all later requests whose prompt carries none."""
        self._ask("/control", {"mode": mode})

    def requests(self) -> list[dict[str, Any]]:
        """Every completion request that ever arrived, from the log: n, task, nth, mode, path, at. Survives kills."""
        text = self.log.read_text(encoding="utf-8") if self.log.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def counts(self) -> Counter[str]:
        """Requests per task, from the log."""
        return Counter(request["task"] for request in self.requests())

    def _ask(self, path: str, value: Any = None) -> dict[str, Any]:
        data = None if value is None else json.dumps(value).encode()
        # No proxy of the environment may stand between a test and its own machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(self.url + path, data=data, timeout=10) as reply:
            return json.loads(reply.read())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()


if __name__ == "__main__":
    # Run as a file, the folder of this file is on the path and the repository is not.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from tests.support.model_http import main

    main(sys.argv[1:])

"""The real NeMo Gym 0.7.0, started by its own command line with the small model behind it.

``NEMO_GYM`` names its program. Every server would build an environment of its own; all are given the program's.
"""

from __future__ import annotations

import os
import subprocess
import time
import urllib.request
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import free_ports, kill_marked, start_daemon
from tests.support.small_model import serve_small_model

PROGRAM = os.environ.get("NEMO_GYM", "")
_MARK = "GYM_EVAL_TEST_NEMO"
_SHARED = ("responses_api_agents/simple_agent", "responses_api_models/vllm_model", "environment_servers/legacy_agent")


@dataclass(frozen=True, slots=True)
class RealServers:
    """Running servers: the head's port, and what was installed."""

    port: int
    directory: Path

    @property
    def site(self) -> Path:
        """Where NeMo Gym's packages lie."""
        environment = Path(PROGRAM).parents[1]
        return next(environment.glob("lib/python*/site-packages"))

    def dataset(self, name: str) -> Path:
        """The example dataset of a resources server."""
        return self.site / "resources_servers" / name / "data" / "example.jsonl"

    def command(self, name: str, output: Path, dataset: Path | None = None) -> list[str]:
        """The words after the program's name, the same for both programs."""
        files = ["--input", str(dataset or self.dataset(name)), "--output", str(output)]
        size = ["--num-repeats", "2", "--concurrency", "4", "--max-output-tokens", "24", "--temperature", "0"]
        head = ["+head_server.host=127.0.0.1", f"+head_server.port={self.port}"]
        return ["eval", "run", "--no-serve", "--agent", f"{name}_simple_agent", *files, *size, *head]

    def theirs(self, *words: str) -> subprocess.CompletedProcess[str]:
        """NeMo Gym's own program; its Hydra writes where it is started."""
        return subprocess.run(
            [PROGRAM, *words], cwd=self.directory, env=_environment(), capture_output=True, text=True, check=False
        )


@contextmanager
def real_servers(directory: Path, names: Iterable[str]) -> Generator[RealServers]:
    """The resources servers ``names`` with one agent each, ready to be asked."""
    environment = Path(PROGRAM).parents[1]
    for part in (*_SHARED, *(f"resources_servers/{name}" for name in names)):
        (directory / "venvs" / part).mkdir(parents=True)
        (directory / "venvs" / part / ".venv").symlink_to(environment)
    log = directory / "servers.log"
    # One answer at a time and no memory of earlier prompts: the sums inside the model depend on both.
    with serve_small_model(directory, parallel=1) as model:
        # Chosen now, when the model's own is taken.
        port = free_ports(1)[0]
        resources = [word for name in names for word in ("--resources-server", name)]
        # Its own programs come first on PATH: servers are started by name.
        command = [
            "env",
            f"PATH={_environment()['PATH']}",
            PROGRAM,
            "env",
            "start",
            *resources,
            "--model-type",
            "vllm_model",
            "--model",
            model.name,
        ]
        command += ["--model-url", model.base_url, "--model-api-key", "none", f"+uv_venv_dir={directory / 'venvs'}"]
        command += ["+policy_model.responses_api_models.vllm_model.extra_body={cache_prompt: false}"]
        command += ["+skip_venv_if_present=true", "+head_server.host=127.0.0.1", f"+head_server.port={port}"]
        mark = f"{_MARK}={os.getpid()}-{port}"
        name, _, value = mark.partition("=")
        os.chdir(directory)
        process = start_daemon(command, env={name: value}, log=log)
        try:
            _await(port, process, log)
            yield RealServers(port, directory)
        finally:
            kill_marked(mark)
            process.wait()


def _environment() -> dict[str, str]:
    path = os.pathsep.join([str(Path(PROGRAM).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path}


def _await(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + 400
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with opener.open(f"http://127.0.0.1:{port}/readyz", timeout=5) as reply:
                if reply.status == 200:
                    return
        except OSError:
            time.sleep(1)
    raise AssertionError(f"the servers are not ready: {log.read_text(errors='replace')[-3000:]}")

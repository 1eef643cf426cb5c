"""A user's folder for tests: datasets, a submit YAML and the program ``gym`` run in it, with nothing faked."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support import model_server as model_server_module
from tests.support import testkit

SERVER = str(Path(model_server_module.__file__))


class Project:
    """``config`` is what the YAML will hold; change it, then ``gym``."""

    def __init__(self, root: Path, compute: Mapping[str, Any]) -> None:
        self.root = root
        self.runs = root / "runs"
        self.requests_log = root / "requests.jsonl"
        root.mkdir(parents=True, exist_ok=True)
        self.config: dict[str, Any] = {
            "services": {"policy": self.service()},
            "compute": {"here": dict(compute)},
            "driver": {"policy_model": "policy", "benchmarks": {}},
            "job": {"output_path": str(self.runs)},
        }

    def service(self, **options: Any) -> dict[str, Any]:
        """A command service that runs the deterministic model server; ``options`` are its switches."""
        switches = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        command = [sys.executable, SERVER, "--port={port}", "--model=test-model", f"--log={self.requests_log}", *switches]
        return {"type": "command", "command": command, "served_model_name": "test-model", "ready_timeout_s": 30}

    def benchmark(self, name: str, *, tasks: int = 6, shards: int = 1, marks: str = "", **run: Any) -> None:
        """Add a benchmark of ``tasks`` rows; each fourth one is graded 0, the others 1."""
        dataset = self.root / f"{len(self.config['driver']['benchmarks'])}.jsonl"
        rows = [
            {
                "grade": 1.0 if task % 4 else 0.0,
                "responses_create_params": {"input": [{"role": "user", "content": f"[[task: {name}-{task}]] {marks} hello"}]},
            }
            for task in range(tasks)
        ]
        dataset.write_text("".join(json.dumps(row) + "\n" for row in rows))
        settings = {"input_jsonl_fpath": str(dataset), "verifier": {"type": "echoed"}, **run}
        self.config["driver"]["benchmarks"][name] = {"shards": shards, "run": settings}

    def write(self, name: str = "submit.yaml") -> Path:
        """The YAML file as ``config`` is now."""
        path = self.root / name
        path.write_text(yaml.safe_dump(self.config, sort_keys=False))
        return path

    def gym(
        self, *arguments: str, timeout_s: float = 60, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run ``gym eval ARGUMENTS`` in the project's folder."""
        return subprocess.run(
            [sys.executable, "-m", "orchestrate.cli.main", "eval", *arguments],
            cwd=self.root,
            env={**self.environment(), **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def submit(self, *arguments: str, code: int = 0, timeout_s: float = 60) -> str:
        """Submit the YAML as it is now and return what was printed; AssertionError for another exit code."""
        done = self.gym("submit", str(self.write()), *arguments, timeout_s=timeout_s)
        assert done.returncode == code, done.stdout + done.stderr + self.logs()
        return done.stdout + done.stderr

    def status(self) -> dict[str, Any]:
        """The JSON of ``gym eval status`` of the only run."""
        done = self.gym("status", str(self.run_dir), "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def environment(self) -> dict[str, str]:
        """What ``gym`` is run with: the test kit's plug-ins and a state directory of its own."""
        return {**testkit.environment(), "XDG_STATE_HOME": str(self.root / "state")}

    @property
    def run_dir(self) -> Path:
        """The only run that was made."""
        (found,) = [path for path in self.runs.iterdir() if not path.name.startswith(".")]
        return found

    def requests(self) -> list[dict[str, Any]]:
        """Every completion request that reached any model server, without those of readiness probes."""
        if not self.requests_log.exists():
            return []
        found = [json.loads(line) for line in self.requests_log.read_text().splitlines()]
        benchmarks = tuple(f"{name}-" for name in self.config["driver"]["benchmarks"])
        return [request for request in found if str(request["task"]).startswith(benchmarks)]

    def logs(self) -> str:
        """What jobs and services wrote, for messages of failing tests."""
        texts = [f"\n== {path}\n{path.read_text(errors='replace')}" for path in sorted(self.runs.rglob("logs/*.log"))]
        return "".join(texts)


def tree(root: Path) -> dict[str, bytes | None]:
    """Every path under ``root`` with its content; None for directories."""
    return {str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in sorted(root.rglob("*"))}

"""One run against the stub servers: its dataset, its settings, sessions in this process, and what they left."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from collector.artifacts import RunArtifacts
from collector.settings import RunSettings
from orchestrate.collection import PreparedRun, collect_here, prepare
from tests.support.nemo_stub import AGENT, NemoStub


class Quiet:
    """Progress that nobody looks at."""

    def started(self, session: object) -> None:
        """A session was opened."""

    def changed(self) -> None:
        """An outcome was recorded."""


class NemoBench:
    """A directory with a dataset and the run that is made of it on ``stub``."""

    def __init__(self, directory: Path, stub: NemoStub) -> None:
        self.directory = directory
        self.stub = stub
        self.artifacts = RunArtifacts(directory / "out" / "rollouts.jsonl")
        self.dataset = directory / "tasks.jsonl"

    def tasks(self, *rows: dict[str, Any]) -> None:
        """Flat rows for the usual agent, each with a number of its own."""
        usual = {"responses_create_params": {"input": [{"role": "user", "content": "2+3?"}]}, "expected": 5}
        self.write(
            *(
                {**usual, "n": n, "agent_ref": {"type": "responses_api_agents", "name": AGENT}, **row}
                for n, row in enumerate(rows)
            )
        )

    def write(self, *rows: dict[str, Any]) -> None:
        """Rows exactly as they are given."""
        self.dataset.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def settings(self, *, agent: dict[str, Any] | None = None, **changes: Any) -> RunSettings:
        """Settings as a file would have them; ``agent`` adds to the agent's own."""
        head = {"host": "127.0.0.1", "port": self.stub.head_port}
        retry = {"backoff_s": 0.001, "backoff_max_s": 0.002, **changes.pop("retry", {})}
        data = {
            "input_jsonl_fpath": self.dataset,
            "output_jsonl_fpath": self.artifacts.rollouts,
            "agent": {"type": "nemo_gym", "head_server": head, **(agent or {})},
            "retry": retry,
            "num_samples_in_parallel": 1,
        }
        return RunSettings.model_validate(data | changes)

    def prepare(self, **changes: Any) -> PreparedRun:
        return prepare(self.settings(**changes))

    def fill(self, **changes: Any) -> dict[str, int]:
        """One session to its end; the states of all rollouts that are not zero."""
        result = asyncio.run(collect_here(self.prepare(**changes), Quiet()))
        return {state.value: count for state, count in result.coverage.states.items() if count}

    def inventory(self, **changes: Any) -> list[dict[str, Any]]:
        """The rows that would be sent."""
        return self.rows_in(self.prepare(**changes))

    def rows_in(self, run: PreparedRun) -> list[dict[str, Any]]:
        """The rows of a prepared run."""
        return [json.loads(line) for line in run.inventory]

    def results(self) -> list[dict[str, Any]]:
        return _lines(self.artifacts.rollouts)

    def failures(self) -> list[dict[str, Any]]:
        return _lines(self.artifacts.failures)

    def files(self) -> dict[str, bytes]:
        """Every file of the run with its bytes."""
        folder = self.artifacts.rollouts.parent
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir())} if folder.is_dir() else {}


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]

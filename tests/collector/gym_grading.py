"""Runs on the stub of a NeMo Gym, for tests of who grades them again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from collector.artifacts import RunArtifacts
from tests.collector.regrading import prepared, write_history
from tests.nemo.bench import NemoBench
from tests.support.nemo_stub import NemoStub


def saved(bench: NemoBench, *rows: dict[str, Any]) -> RunArtifacts:
    """A run on the stub with a result for each of ``rows``, all graded 0."""
    bench.tasks(*rows)
    artifacts = prepared(bench.settings(verifier="environment"))
    for index in range(len(rows)):
        write_history(artifacts, index, ["ok"])
    return artifacts


def server(stub: NemoStub, **more: Any) -> dict[str, Any]:
    return {"verifier": {"type": "gym_server", "head_server": {"port": stub.head_port}, **more}}


def write_files(
    directory: Path, results: list[dict[str, Any]], failures: list[dict[str, Any]], *, inventory: Path | None = None
) -> Path:
    directory.mkdir()
    paths = RunArtifacts(directory / "rollouts.jsonl")
    for path, found in ((paths.rollouts, results), (paths.failures, failures)):
        path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in found))
    if inventory is not None:
        paths.inventory.write_bytes(inventory.read_bytes())
    return paths.rollouts


def result_of(task: int, **fields: Any) -> dict[str, Any]:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "5"}]}
    return {
        "_ng_task_index": task, "_ng_rollout_index": 0, "responses_create_params": {"input": "2+3?"}, "reward": 0.0,
        "response": {"output": [message]}, **fields,
    }  # fmt: skip

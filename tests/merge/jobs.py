"""What test processes run: the product's own functions, called with plain values."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from collector.artifacts import RunArtifacts
from collector.settings import RetrySettings
from exporters.tail import TailResult, finish_benchmark
from merge.command import merge_paths

ROOT = Path(__file__).resolve().parents[2]


def merge(inputs: list[str], target: str) -> None:
    merge_paths(inputs, Path(target))


def finish(target: str, shards: list[str], exports: dict[str, Any], report: str | None = None) -> TailResult:
    result = finish_benchmark(
        RunArtifacts(Path(target)),
        [RunArtifacts(Path(shard)) for shard in shards],
        benchmark="bench",
        retry=RetrySettings(),
        exports=exports,
    )
    if report is not None:
        states = {name: (found.state.value, found.message) for name, found in result.exports.items()}
        Path(report).write_text(json.dumps({"state": result.state.value, "exports": states}))
    return result


def start(n: int, log: Path, function: str, arguments: dict[str, Any]) -> subprocess.Popen[bytes]:
    """A process that calls ``function`` of this module and kills itself before its n-th disk call; -1: never."""
    command = [sys.executable, "-m", "tests.merge.crash_worker", str(n), str(log), f"tests.merge.jobs:{function}"]
    return subprocess.Popen([*command, json.dumps(arguments)], cwd=ROOT, stderr=subprocess.PIPE)


def run(n: int, log: Path, function: str, arguments: dict[str, Any]) -> int:
    """The exit code of that process."""
    process = start(n, log, function, arguments)
    _, errors = process.communicate(timeout=50)
    if process.returncode not in {0, -9}:
        raise AssertionError(errors.decode())
    return process.returncode

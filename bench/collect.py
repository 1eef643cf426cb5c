"""Whole collectors on the same work: rollouts of an instant server, ours (fsync'd journal), a bare aiohttp loop, NeMo Gym's.

Each command is a process of its own; runs are interleaved, and what is printed are medians and ratios of one call. NeMo Gym
takes part when ``NEMO_GYM`` names its ``gym`` program: its collector alone, and the whole with aggregation and health check,
where a server that answers at once stands for the one that computes its metrics. Ours is always the whole, metrics included.
The bare loop takes part when aiohttp is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from bench.processes import Cost, free_port, measure  # noqa: E402


def commands(port: int, rows: int, concurrency: int, tasks: Path) -> dict[str, list[str]]:
    """Name to command; ``{out}`` is a directory that does not exist."""
    url = f"http://127.0.0.1:{port}/v1"
    gym = str(Path(sys.executable).with_name("gym"))
    common = ["--input", str(tasks), "--output", "{out}/rollouts.jsonl", "--concurrency", str(concurrency)]
    found = {"ours": [gym, "eval", "run", *common, "--model", "m", "--model-url", url, "--verifier", "number"]}
    if importlib.util.find_spec("aiohttp"):
        found["bare aiohttp"] = [
            sys.executable, str(HERE / "bare_loop.py"), f"{url}/chat/completions", str(rows), str(concurrency), "{out}.bare"
        ]  # fmt: skip
    if nemo := os.environ.get("NEMO_GYM"):
        head = ["+head_server.host=127.0.0.1", f"+head_server.port={port}"]
        whole = [nemo, "eval", "run", "--no-serve", "--agent", "bench_agent", *common, *head]
        found["NeMo Gym's collector"] = [*whole, "--disable-aggregation", "--no-health-check"]
        found["NeMo Gym"] = whole
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=2000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    port = free_port()
    server = subprocess.Popen([sys.executable, str(HERE / "instant_server.py"), "--port", str(port)])
    found: dict[str, list[Cost]] = {}
    try:
        with tempfile.TemporaryDirectory() as directory:
            tasks = Path(directory) / "tasks.jsonl"
            row = {
                "responses_create_params": {"input": [{"role": "user", "content": "What is 2 + 3?"}]},
                "expected_answer": "5",
            }
            tasks.write_text("".join(json.dumps({"id": n, **row}) + "\n" for n in range(args.rollouts)))
            time.sleep(1)
            for turn in range(args.repeats):
                for number, (name, command) in enumerate(commands(port, args.rollouts, args.concurrency, tasks).items()):
                    out = Path(directory) / f"{number}-{turn}"
                    run = measure([part.replace("{out}", str(out)) for part in command])
                    found.setdefault(name, []).append(run)
                    shutil.rmtree(out, ignore_errors=True)
    finally:
        server.kill()
    ours = found["ours"]
    print(f"{args.rollouts} rollouts at concurrency {args.concurrency}, medians of {args.repeats}")
    for name, runs in found.items():
        wall = statistics.median(run.wall_s for run in runs)
        cpu = statistics.median(run.cpu_s for run in runs)
        peak = max(run.peak_mb for run in runs)
        ratio = statistics.median(own.wall_s / other.wall_s for own, other in zip(ours, runs, strict=True))
        print(f"{name:>20}: {wall:6.2f} s wall, {cpu:6.2f} s CPU, {peak:5.0f} MB; ours takes {ratio:.2f} of its wall time")
    return 0


if __name__ == "__main__":
    sys.exit(main())

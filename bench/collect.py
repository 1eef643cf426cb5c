"""Whole collectors on the same work: rollouts of an instant server, ours (fsync'd journal), a bare aiohttp loop, NeMo Gym's.

Each command is a process of its own; runs are interleaved, and what is printed are medians and ratios of one call. NeMo Gym
takes part when ``NEMO_GYM`` names its ``gym`` program; the bare loop when aiohttp is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Run:
    wall_s: float
    cpu_s: float
    peak_mb: float


def measure(command: list[str], cwd: Path) -> Run:
    """Wall and CPU seconds and peak memory of one process and its children."""
    begun = time.perf_counter()
    child = subprocess.Popen(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, said = child.communicate()
    wall = time.perf_counter() - begun
    if child.returncode:
        raise SystemExit(f"{command[0]} ended with {child.returncode}: {said.decode()[-800:]}")
    return Run(wall, 0.0, 0.0)


def measured_in_child(command: list[str], cwd: Path) -> Run:
    """``measure`` in a process of its own, whose children are then only this command's."""
    program = f"import sys; sys.path.insert(0, {str(HERE)!r}); import collect; collect.child()"
    done = subprocess.run([sys.executable, "-c", program, json.dumps([command, str(cwd)])], stdout=subprocess.PIPE, check=True)
    return Run(*json.loads(done.stdout))


def child() -> None:
    command, cwd = json.loads(sys.argv[1])
    run = measure(command, Path(cwd))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps([run.wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))


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
        head = ["+head_server.host=127.0.0.1", f"+head_server.port={port}", "--disable-aggregation", "--no-health-check"]
        found["NeMo Gym"] = [nemo, "eval", "run", "--no-serve", "--agent", "bench_agent", *common, *head]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=2000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen([sys.executable, str(HERE / "instant_server.py"), "--port", str(port)])
    found: dict[str, list[Run]] = {}
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
                for name, command in commands(port, args.rollouts, args.concurrency, tasks).items():
                    out = Path(directory) / f"{name.split()[0]}-{turn}"
                    run = measured_in_child([part.replace("{out}", str(out)) for part in command], Path(directory))
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
        print(f"{name:>14}: {wall:6.2f} s wall, {cpu:6.2f} s CPU, {peak:5.0f} MB; ours takes {ratio:.2f} of its wall time")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Health of a file of rollouts, as whole processes: this project's and, where NEMO_GYM names its program, NeMo Gym's.

Usage: NEMO_GYM=/path/to/nemo/bin/gym python bench/health.py [ROWS] [ROW_BYTES] [ROUNDS]. Prints medians and their ratio.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPEATS = 4


def row(task: int, repeat: int, size_bytes: int) -> bytes:
    """One rollout of about ``size_bytes``: two thirds prompt, one third answer; every hundredth is cut off and empty."""
    is_empty = (task * REPEATS + repeat) % 100 == 99
    text = "" if is_empty else "word " * (size_bytes // 15)
    response = {
        "id": f"resp_{task}_{repeat}",
        "object": "response",
        "created_at": 1.0,
        "model": "m",
        "status": "incomplete" if is_empty else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if is_empty else None,
        "output": [{"id": "msg", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}],
        "usage": {"input_tokens": 500, "output_tokens": 250, "total_tokens": 750},
    }
    params = {"input": [{"role": "user", "content": "prompt " * (size_bytes * 2 // 21)}]}
    whole = {
        "_ng_task_index": task,
        "_ng_rollout_index": repeat,
        "responses_create_params": params,
        "response": response,
        "reward": float(task % 2),
    }
    return json.dumps(whole).encode() + b"\n"


def write_rows(path: Path, rows: int, size_bytes: int) -> None:
    """A merged file of ``rows`` rollouts."""
    with path.open("wb") as file:
        file.writelines(row(i // REPEATS, i % REPEATS, size_bytes) for i in range(rows))


def measure(command: list[str], directory: Path) -> tuple[float, float, int]:
    """Wall seconds, CPU seconds of the process and its children, and its peak memory in MB, of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    subprocess.run(command, cwd=directory, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, after.ru_maxrss // 1024


def main() -> None:
    """Interleaved rounds of both programs over the same file."""
    rows, size_bytes, rounds = (int(value) for value in (*sys.argv[1:4], *("200000", "4096", "3")[len(sys.argv) - 1 :]))
    directory = Path(tempfile.mkdtemp(prefix="gym-eval-health-"))
    path = directory / "rollouts.jsonl"
    try:
        write_rows(path, rows, size_bytes)
        print(f"{rows} rows, {path.stat().st_size / 1e6:.0f} MB")
        ours = [sys.executable, "-m", "orchestrate.cli.main", "eval", "health-check", str(path)]
        commands = {"gym-eval": ours}
        if "NEMO_GYM" in os.environ:
            commands["nemo-gym"] = [os.environ["NEMO_GYM"], "eval", "health-check", str(directory)]
        walls: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name, command in commands.items():
                wall, cpu, memory_mb = measure(command, Path(__file__).resolve().parents[1])
                walls[name].append(wall)
                print(f"{name:9} {wall:6.2f} s wall, {cpu:6.2f} s CPU, peak so far {memory_mb} MB")
        medians = {name: statistics.median(found) for name, found in walls.items()}
        print(", ".join(f"{name} {median:.2f} s" for name, median in medians.items()))
        if len(medians) == 2:
            print(f"ratio {medians['gym-eval'] / medians['nemo-gym']:.3f}")
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()

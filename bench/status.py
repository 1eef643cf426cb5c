"""How long ``gym eval status`` and ``list`` take of a run with thousands of shards, before and after a first look.

Once all shards are final, and once no job has begun. The run is made by the product itself, its shards are written in its own
format, and squeue is a program that lists every job.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collector.formats import events
from collector.formats.events import Dispatched, Event, SessionEnded, SessionStarted, Success
from collector.formats.manifest import read_manifest
from orchestrate.config.load import load_config
from orchestrate.runs.creation import create_run
from orchestrate.runs.directory import RunDir
from orchestrate.runs.plan import BenchmarkPlan
from orchestrate.runs.submissions import Prepared, Submitted, append
from orchestrate.submission.submit import gather, make_plan

_AT = "2026-01-01T00:00:00.000+00:00"


def make_run(root: Path, shards: int, rollouts: int, *, are_final: bool = True) -> RunDir:
    """A run of one benchmark with ``rollouts`` in each of its ``shards``, and a job for each shard."""
    dataset = root / "rows.jsonl"
    dataset.write_text("".join(f'{{"question": "{n} + 1?", "expected_answer": "{n + 1}"}}\n' for n in range(shards * rollouts)))
    run_section = {
        "input_jsonl_fpath": str(dataset), "prompt_config": {"user": "{question}"}, "verifier": {"type": "number"},
        "policy_model_name": "m", "policy_base_url": "http://127.0.0.1:9/v1",
    }  # fmt: skip
    raw: dict[str, Any] = {
        "compute": {"hpc": {"type": "slurm", "walltime": "1:00:00"}},
        "driver": {"benchmarks": {"sums": {"shards": shards, "run": run_section}}},
        "job": {"output_path": str(root / "runs"), "name": "bench"},
    }
    loaded = load_config(raw, where=root, environ=os.environ)
    sources = gather(loaded)
    plan = make_plan(loaded, sources, root / "bench.yaml", new=False)
    run = create_run(plan, sources, loaded.runs)
    (benchmark,) = plan.benchmarks
    for index in range(shards if are_final else 0):
        _fill(run, benchmark, index)
    append(run.submissions, Prepared(at=_AT, token="gym-bench", benchmark="sums", indexes=tuple(range(shards)), deadline=0))
    append(run.submissions, Submitted(at=_AT, token="gym-bench", jobs={n: f"7_{n}" for n in range(shards)}))
    return run


def _fill(run: RunDir, benchmark: BenchmarkPlan, index: int) -> None:
    artifacts = run.shard(benchmark, index)
    manifest = read_manifest(artifacts.manifest)
    assert manifest is not None
    common: dict[str, Any] = {"run_id": manifest.run_id, "session": 0, "at": _AT}
    written: list[Event] = [SessionStarted(**common, seq=0, reason="fresh", host="h", pid=1, job_id=f"7_{index}")]
    rows: list[bytes] = []
    for position, line in enumerate(artifacts.inventory.read_bytes().splitlines()):
        task = json.loads(line)["_ng_task_index"]
        row = b'{"_ng_task_index":%d,"_ng_rollout_index":0,"reward":1,"_ng_run_id":"%s","_ng_session":0}\n' % (
            task,
            manifest.run_id.encode(),
        )
        written.append(Dispatched(**common, seq=2 * position + 1, rollout_id=f"{task}-0", attempt_index=0))
        written.append(
            Success(
                **common, seq=2 * position + 2, rollout_id=f"{task}-0", attempt_index=0, offset=sum(map(len, rows)),
                length=len(row), checksum=zlib.crc32(row), reward=1, elapsed_s=1.25,
            )
        )  # fmt: skip
        rows.append(row)
    written.append(SessionEnded(**common, seq=len(written), reason="drained"))
    artifacts.rollouts.write_bytes(b"".join(rows))
    artifacts.journal.write_bytes(b"".join(map(events.encode, written)))


def programs(directory: Path, shards: int) -> str:
    """PATH with a squeue that lists every job as completed, as fast as a program can."""
    directory.mkdir()
    (directory / "jobs").write_text("".join(f"7_{n}|COMPLETED|None\n" for n in range(shards)))
    (directory / "squeue").write_text(f'#!/bin/sh\nexec cat "{directory}/jobs"\n')
    (directory / "squeue").chmod(0o755)
    return f"{directory}{os.pathsep}{os.environ['PATH']}"


def timed(arguments: list[str], environment: dict[str, str]) -> str:
    """Wall and CPU seconds of ``gym eval ARGUMENTS`` as a process of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "orchestrate.cli.main", "eval", *arguments],
        env=environment,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    wall = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return f"{wall:.2f} s wall, {after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime:.2f} s CPU"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=3000)
    parser.add_argument("--rollouts", type=int, default=10, help="of each shard")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        print(f"{args.shards} shards of {args.rollouts} rollouts")
        print(f"python -c pass        {timed_python()}")
        for title, are_final in (("final", True), ("submitted", False)):
            root = Path(temporary) / title
            root.mkdir()
            run = make_run(root, args.shards, args.rollouts, are_final=are_final)
            environment = {**os.environ, "PATH": programs(root / "bin", args.shards), "XDG_STATE_HOME": str(root / "state")}
            print(f"{title}:")
            for label in ("status, first", "status, second", "status, third"):
                print(f"{label:<20}  {timed(['status', str(run.root)], environment)}")
            print(f"{'list':<20}  {timed(['list'], environment)}")
    return 0


def timed_python() -> str:
    """What the interpreter alone takes."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return f"{time.perf_counter() - begun:.2f} s wall"


if __name__ == "__main__":
    sys.exit(main())

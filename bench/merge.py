"""What a merge with coverage, metrics and receipt costs, beside ``cat`` and fsync of the same bytes.

    python bench/merge.py --rows 20000 --shards 8 --dir /tmp/bench-merge

Each measurement is a process of its own, children included; variants alternate, and medians of wall times are compared. Memory
is the largest sum over a process and its children, pages that they share counted once, in a run of its own. Shards are
made once, with rows of about 4 KB recorded slightly out of order, as concurrent requests finish. Nothing is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from collector import events, rows  # noqa: E402
from collector.events import Dispatched, SessionEnded, SessionStarted, Success  # noqa: E402
from collector.prepare import prepare_shard  # noqa: E402
from tests.merge.build import Plan, plan  # noqa: E402

#: Requests in flight while the shards were "collected": a row lands up to so many places late.
IN_FLIGHT = 64


def deal(made: Plan) -> None:
    """Spread the rollouts over the shards at random, each shard in order, as a submission does."""
    rng = random.Random(0)
    whole = [line for part in made.lines for line in part]
    for part in made.lines:
        part.clear()
    for line in whole:
        made.lines[rng.randrange(len(made.lines))].append(line)


def write_shard(made: Plan, index: int, seed: int) -> None:
    """Fill one shard by the formats directly: the collector's own loop would take minutes for a million rows."""
    artifacts, run_id = made.shards[index], made.run_id
    prepare_shard(artifacts, made.lines[index], made.manifest(index))
    rng = random.Random(seed)
    order = sorted(range(len(made.lines[index])), key=lambda i: i + rng.random() * IN_FLIGHT)
    common = {"run_id": run_id, "session": 0, "at": "2026-01-01T00:00:00.000+00:00"}
    with artifacts.rollouts.open("ab") as main, artifacts.journal.open("ab") as journal:
        started = SessionStarted(**common, seq=0, reason="fresh", host="h", pid=1)
        journal.write(events.encode(started))
        seq, offset = 1, 0
        for i in order:
            source = made.lines[index][i]
            stamp = rows.parse_stamp(source)
            reward = float(rng.random() < 0.4)
            line = result_line(source, run_id, reward, rng)
            main.write(line)
            same = {**common, "rollout_id": stamp.rollout_id, "attempt_index": 0}
            journal.write(events.encode(Dispatched(**same, seq=seq)))
            done = Success(
                **same, seq=seq + 1, offset=offset, length=len(line), checksum=zlib.crc32(line), reward=reward, elapsed_s=1.5
            )
            journal.write(events.encode(done))
            seq, offset = seq + 2, offset + len(line)
        journal.write(events.encode(SessionEnded(**common, seq=seq, reason="final")))


def result_line(source: bytes, run_id: str, reward: float, rng: random.Random) -> bytes:
    """A row of about 4 KB: a reasoning answer with usage, beside the input that it answers."""
    text = "the answer follows from the second equation " * 64
    tokens = rng.randrange(200, 900)
    added = {
        "response": {
            "id": f"resp_{rng.getrandbits(64):x}",
            "object": "response",
            "model": "m",
            "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}],
            "usage": {"input_tokens": 310, "output_tokens": tokens, "total_tokens": 310 + tokens},
        },
        "reward": reward,
        "mask_sample": False,
        "extracted_answer": str(tokens),
        "_ng_run_id": run_id,
        "_ng_session": 0,
    }
    return source.rstrip()[:-1] + b"," + json.dumps(added, separators=(",", ":")).encode()[1:] + b"\n"


MERGE = """
import sys, time, resource
from pathlib import Path
from merge.command import merge_paths
begun = time.perf_counter()
report = merge_paths([sys.argv[1]], Path(sys.argv[2]))
wall = time.perf_counter() - begun
used = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
output = report.receipt.output
print(wall, used, output.size_bytes, output.rows)
"""
COPY = """
import sys, time, resource
from array import array
from pathlib import Path
from merge.publish import Part, publish_parts
from merge.row_numbers import NumberReader, RowNumbers
from merge.read_shards import read_shards
from merge.sources import resolve_sources
from collector.settings import RetrySettings
NumberReader.read = lambda self, block: RowNumbers(array("q"), array("q"), array("q"), False, {}, array("q"), {})
both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
shards = read_shards(resolve_sources([sys.argv[1]]).artifacts, RetrySettings())
used = sum(sum(resource.getrusage(who)[:2]) for who in both)
begun = time.perf_counter()
publish_parts(Path(sys.argv[2]), [Part(shards)])
print(time.perf_counter() - begun, sum(sum(resource.getrusage(who)[:2]) for who in both) - used, 0, 0)
"""
CAT = """
import os, subprocess, sys, time, resource
begun = time.perf_counter()
with open(sys.argv[2], "wb") as out:
    subprocess.run(["cat", *sys.argv[3:]], stdout=out, check=True)
    os.fsync(out.fileno())
wall = time.perf_counter() - begun
print(wall, sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]), 0, 0)
"""


def measured(code: str, *arguments: str) -> list[float]:
    done = subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True, cwd=ROOT)
    return [float(word) for word in done.stdout.split()]


def peak_mb(code: str, *arguments: str) -> float:
    """The largest memory of a process and its children together, looked at a hundred times a second."""
    peak = 0
    with subprocess.Popen([sys.executable, "-c", code, *arguments], cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak = max(peak, sum(map(share_kb, [process.pid, *children_of(process.pid)])))
            time.sleep(0.01)
    return peak / 1024


def children_of(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def share_kb(pid: int) -> int:
    """Memory of one process, pages shared with others divided among them."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--contiguous", action="store_true", help="shards of neighbouring tasks instead of dealt ones")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", type=Path, default=Path("/tmp/bench-merge"))
    options = parser.parse_args()
    directory: Path = options.dir / "bench"
    shutil.rmtree(options.dir, ignore_errors=True)
    try:
        row = {"question": "two trains leave two towns " * 12, "expected": "4"}
        made = plan(directory, shards=options.shards, tasks=options.rows // options.repeats, repeats=options.repeats, row=row)
        if not options.contiguous:
            deal(made)
        for index in range(options.shards):
            write_shard(made, index, index)
        os.sync()
        report(made, options.rounds)
    finally:
        shutil.rmtree(options.dir, ignore_errors=True)


def report(made: Plan, rounds: int) -> None:
    sources = [str(shard.rollouts) for shard in made.shards]
    targets = {name: made.directory / f"{name}.jsonl" for name in ("cat", "copy", "merge")}
    found: dict[str, list[list[float]]] = {name: [] for name in targets}
    for _ in range(rounds):
        for name, code in (("cat", CAT), ("copy", COPY), ("merge", MERGE)):
            for path in made.directory.glob(f"{name}*"):
                path.unlink()
            os.sync()
            time.sleep(0.5)
            extra = sources if name == "cat" else []
            found[name].append(measured(code, str(made.directory), str(targets[name]), *extra))
    peaks = {name: peak_mb(code, str(made.directory), str(targets[name])) for name, code in (("copy", COPY), ("merge", MERGE))}
    size, count = found["merge"][0][2:]
    floor = statistics.median(run[0] for run in found["cat"])
    print(f"{count:,.0f} rows, {size / 1e6:,.0f} MB, {len(sources)} shards, medians of {rounds}")
    print("| what | wall s | x cat+fsync | CPU s | peak MB |\n| --- | --- | --- | --- | --- |")
    labels = {"cat": "cat + fsync", "copy": "rows only: verify, copy, digest, fsync", "merge": "whole merge in its process"}
    for name, runs in found.items():
        wall, cpu = (statistics.median(run[i] for run in runs) for i in range(2))
        print(f"| {labels[name]} | {wall:.2f} | {wall / floor:.2f} | {cpu:.2f} | {peaks.get(name, float('nan')):.0f} |")


if __name__ == "__main__":
    main()

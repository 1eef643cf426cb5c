"""What a merge with coverage, metrics and receipt costs, beside ``cat`` and fsync of the same bytes.

    python bench/merge.py --rows 20000 --shards 8 --dir /tmp/bench-merge

Each measurement is a process of its own, children included; variants alternate, and medians of wall times are compared. Memory
is the largest sum over a process and its children, pages that they share counted once, in a run of its own. Shards are
made once, with rows of about 4 KB recorded slightly out of order, as concurrent requests finish. Nothing is kept.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.shards import make_shards  # noqa: E402
from tests.merge.build import Plan  # noqa: E402

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
from merge.publication.publish import Part, publish_parts
from merge.rows.numbers import NumberReader, RowNumbers
from merge.inputs.read_shards import read_shards
from merge.inputs.sources import find_runs
from collector.settings import RetrySettings
NumberReader.read = lambda self, block: RowNumbers(array("q"), array("q"), array("q"), False, {}, array("q"), {})
both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
shards = read_shards(find_runs([sys.argv[1]]), RetrySettings())
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
        made = make_shards(
            directory, rows=options.rows, shards=options.shards, repeats=options.repeats, is_dealt=not options.contiguous
        )
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

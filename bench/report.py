"""``gym eval report`` and ``compare`` of a large run and of a tenth of it, as whole processes beside reading its rows once.

Usage: python bench/report.py [--rows 200000] [--rounds 3]. No other program writes such a report; what it is held against is
``cat`` of the same rows.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from bench.processes import Cost, apart, measure  # noqa: E402
from bench.shards import make_shards  # noqa: E402

GYM = [sys.executable, "-m", "orchestrate.cli.main", "eval"]


def commands(run: Path, out: Path) -> dict[str, list[str]]:
    """Name to command, over the shards of ``run`` and what was merged of them."""
    merged = str(run / "rollouts.jsonl")
    rows = " ".join(f"'{path}'" for path in sorted(run.glob("shards/*/rollouts.jsonl")))
    return {
        "cat": ["sh", "-c", f"cat {rows} | cat"],
        "report": [*GYM, "report", str(run), "-o", str(out / "page.html")],
        "compare": [*GYM, "compare", merged, merged, "--output-dir", str(out)],
    }


def figures(directory: Path, rows: int, rounds: int) -> None:
    """Print the medians of ``rounds`` interleaved turns over a run of ``rows``."""
    run, out = directory / f"run-{rows}", directory / "out"
    apart(make_shards, run, rows=rows, shards=8, repeats=4)
    env = {"PYTHONPATH": str(HERE.parent)}
    out.mkdir(exist_ok=True)
    measure([*GYM, "aggregate", "--no-health-check", str(run), "-o", str(run / "rollouts.jsonl")], out / "said", env)
    found: dict[str, list[Cost]] = {}
    for _ in range(rounds):
        for name, command in commands(run, out).items():
            found.setdefault(name, []).append(measure(command, os.devnull, env))
    base = statistics.median(cost.wall_s for cost in found["cat"])
    for name, costs in found.items():
        wall, cpu, peak = (statistics.median(values) for values in zip(*costs, strict=True))
        print(f"| {name} of {rows:,} rows | {wall:.2f} | {cpu:.2f} | {peak:.0f} | {wall / base:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", type=Path, default=Path("/tmp/bench-report"))
    options = parser.parse_args()
    shutil.rmtree(options.dir, ignore_errors=True)
    options.dir.mkdir(parents=True)
    print("| program | wall s | CPU s | peak MB | times of cat |\n| --- | --- | --- | --- | --- |")
    try:
        for rows in (options.rows, options.rows // 10):
            figures(options.dir, rows, options.rounds)
    finally:
        shutil.rmtree(options.dir, ignore_errors=True)


if __name__ == "__main__":
    main()

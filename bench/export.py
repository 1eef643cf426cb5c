"""What an ATIF export costs, beside another program's on the same rows.

    python bench/export.py --rollouts finished/rollouts.jsonl [--peer "other eval export ..."] --rounds 3

Each measurement is a whole process; ours and the peer's alternate. In ``--peer``, ``{rollouts}`` and ``{out}`` are replaced.
Peak memory is that of the process and its children. Whatever was exported is removed at the very end: ext4 steps over the
numbers of files that were deleted a minute ago, one by one, and the next export would pay half a millisecond for each file.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OURS = [
    sys.executable,
    "-m",
    "orchestrate.cli.main",
    "eval",
    "export",
    "atif",
    "--rollouts",
    "{rollouts}",
    "--output-dir",
    "{out}",
]
OURS += ["--session-id", "s", "--agent-version", "1.0.0"]


def measure(command: list[str], rollouts: Path, out: Path) -> tuple[float, float, float]:
    """Wall and CPU seconds and peak megabytes of one export into the new folder ``out``."""
    filled = [part.format(rollouts=rollouts, out=out) for part in command]
    begun = time.monotonic()
    pid = os.posix_spawnp(
        filled[0], filled, {**os.environ, "PYTHONPATH": str(ROOT)},
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )  # fmt: skip
    _, status, usage = os.wait4(pid, 0)
    wall = time.monotonic() - begun
    if status:
        raise SystemExit(f"ended with {os.waitstatus_to_exitcode(status)}: {shlex.join(filled)}")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=Path, required=True)
    parser.add_argument("--peer")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    programs = {"ours": OURS, **({"peer": shlex.split(args.peer)} if args.peer else {})}
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in programs}
    folder = Path(tempfile.mkdtemp(prefix="bench-export-"))
    try:
        for number in range(args.rounds):
            for name, command in programs.items():
                found[name].append(measure(command, args.rollouts.absolute(), folder / f"{name}-{number}"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for name, rounds in found.items():
        wall, cpu, peak = (statistics.median(values) for values in zip(*rounds, strict=True))
        print(f"{name}: wall {wall:.2f} s, cpu {cpu:.2f} s, peak {peak:.0f} MB (median of {len(rounds)})")


if __name__ == "__main__":
    main()

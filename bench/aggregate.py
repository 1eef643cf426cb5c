"""``gym eval aggregate`` of a run's shards beside NeMo Gym's of the same files: whole processes, in turn.

    NEMO_GYM=<environment>/bin/gym python bench/aggregate.py --rows 20000 --dir /tmp/bench-aggregate [--with-metrics]

NeMo Gym's loads the shards, merges them and sends the rows to a server, here one that answers at once. With ``--with-metrics``
there is one turn more, with a server that computes NeMo Gym's own metrics in NeMo Gym's environment; its CPU time counts.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from bench.processes import Cost, apart, cpu_of, free_port, measure  # noqa: E402
from bench.shards import make_shards  # noqa: E402

#: Seconds that NeMo Gym's server may take to import what it needs.
_START_S = 120


@contextmanager
def server(python: str, script: str) -> Iterator[tuple[int, int]]:
    """The port and the process of the server in ``script``, which answers by now."""
    port = free_port()
    with subprocess.Popen([python, str(HERE / script), "--port", str(port)]) as process:
        try:
            deadline = time.monotonic() + _START_S
            while not answers(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{script} did not start")
                time.sleep(0.2)
            yield port, process.pid
        finally:
            process.kill()


def answers(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/global_config_dict_yaml"):
            return True
    except URLError:
        return False


def ours(run: Path, out: Path) -> Cost:
    command = [sys.executable, "-m", "orchestrate.cli.main", "eval", "aggregate", "--no-health-check", str(run)]
    return measure([*command, "-o", str(out / "rollouts.jsonl")], out / "said.txt", {"PYTHONPATH": str(HERE.parent)})


def theirs(gym: str, run: Path, out: Path, port: int, pid: int) -> Cost:
    head = ["--no-health-check", "+head_server.host=127.0.0.1", f"+head_server.port={port}"]
    files = ["--input-glob", f"{run}/shards/*/rollouts.jsonl", "--output", str(out / "rollouts.jsonl")]
    before = cpu_of(pid)
    cost = measure([gym, "eval", "aggregate", *files, *head], out / "said.txt")
    if len((out / "rollouts_aggregate_metrics.json").read_bytes()) < len("[{}]"):
        raise SystemExit(f"no metrics: {(out / 'said.txt').read_text()}")
    return cost._replace(cpu_s=cost.cpu_s + cpu_of(pid) - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", type=Path, default=Path("/tmp/bench-aggregate"))
    parser.add_argument("--with-metrics", action="store_true", help="one turn with NeMo Gym's own metrics: minutes")
    options = parser.parse_args()
    gym = os.environ["NEMO_GYM"]
    shutil.rmtree(options.dir, ignore_errors=True)
    found: dict[str, list[Cost]] = {}
    try:
        run = options.dir / "run"
        apart(make_shards, run, rows=options.rows, shards=options.shards, repeats=4)
        turns = [(sys.executable, "instant_server.py", "NeMo Gym, metrics not computed")] * options.rounds
        if options.with_metrics:
            turns.append((str(Path(gym).with_name("python")), "metrics_server.py", "NeMo Gym, with its metrics"))
        for number, (python, script, name) in enumerate(turns):
            for who in ("gym-eval", name):
                out = options.dir / f"{who.split()[0]}-{number}"
                out.mkdir()
                with server(python, script) as (port, pid):
                    cost = ours(run, out) if who == "gym-eval" else theirs(gym, run, out, port, pid)
                found.setdefault(who, []).append(cost)
                shutil.rmtree(out)
                os.sync()
    finally:
        shutil.rmtree(options.dir, ignore_errors=True)
    print(f"{options.rows:,} rows\n| program | wall s | CPU s | peak MB | times of ours |\n| --- | --- | --- | --- | --- |")
    usual = statistics.median(cost.wall_s for cost in found["gym-eval"])
    for name, costs in found.items():
        wall, cpu, peak = (statistics.median(values) for values in zip(*costs, strict=True))
        print(f"| {name} ({len(costs)}) | {wall:.2f} | {cpu:.2f} | {peak:.0f} | {wall / usual:.1f} |")


if __name__ == "__main__":
    main()

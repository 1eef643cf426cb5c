"""What one more rollout costs a collector: processor time of a session alone, from taking over its shard to letting it go.

    python bench/session.py [--concurrency 64 256] [--turns 5] [--beside CHECKOUT]

Each session is a process of its own with a prepared shard, an instant server over HTTP, and a journal made durable by fsync;
it measures itself, threads included. The cost of one more rollout is the difference between many and few rollouts over their
number: what a session costs once drops out. Turns are interleaved. ``--beside`` names another checkout of this project, run
in turn; the bare aiohttp loop takes part when aiohttp is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent


class Used(NamedTuple):
    """What a session, or one more rollout of it, used."""

    wall_s: float
    user_s: float
    sys_s: float
    waits: float
    preemptions: float

    @classmethod
    def now(cls) -> Used:
        """What this process has used."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return cls(time.perf_counter(), used.ru_utime, used.ru_stime, used.ru_nvcsw, used.ru_nivcsw)

    def since(self, before: Used) -> Used:
        return Used(*(a - b for a, b in zip(self, before, strict=True)))

    def each(self, count: int) -> Used:
        return Used(*(value / count for value in self))


def bare(url: str, rollouts: int, concurrency: int, directory: Path) -> Used:
    """The bare loop of this folder."""
    sys.path.insert(0, str(HERE))
    import bare_loop  # noqa: PLC0415 - needs aiohttp

    return measured(bare_loop.collect(f"{url}/chat/completions", rollouts, concurrency, directory / "bare.jsonl"))


def session(url: str, rollouts: int, concurrency: int, directory: Path) -> Used:
    """A collector's session of the checkout in ``PYTHONPATH``."""
    from collector.artifacts import RunArtifacts  # noqa: PLC0415 - the bare loop's process does not load it
    from collector.collect import collect  # noqa: PLC0415
    from collector.preparation.materialize import materialize  # noqa: PLC0415
    from collector.preparation.prepare import new_manifest, prepare_shard  # noqa: PLC0415
    from collector.session import JobFacts  # noqa: PLC0415
    from collector.settings import RunSettings  # noqa: PLC0415
    from collector.shard.lock import ShardLock  # noqa: PLC0415
    from collector.stop import StopRequest  # noqa: PLC0415

    tasks = directory / "tasks.jsonl"
    asked = {"responses_create_params": {"input": [{"role": "user", "content": "What is 2 + 3?"}]}, "expected_answer": "5"}
    tasks.write_text("".join(json.dumps({"id": n, **asked}) + "\n" for n in range(rollouts)))
    settings = RunSettings.model_validate(
        {
            "input_jsonl_fpath": tasks,
            "output_jsonl_fpath": directory / "rollouts.jsonl",
            "policy_base_url": url,
            "policy_model_name": "m",
            "verifier": {"type": "number"},
            "num_samples_in_parallel": concurrency,
        }
    )
    artifacts = RunArtifacts(settings.output_jsonl_fpath)
    made = materialize(settings)
    with ShardLock(artifacts.lock) as lock:
        prepare_shard(artifacts, made, new_manifest(settings, made, benchmark="bench"))
        used = measured(collect(settings, artifacts, lock, job=JobFacts(), stop=StopRequest()))
    rows = artifacts.rollouts.read_bytes().count(b'"reward":1.0')
    if rows != rollouts:
        raise SystemExit(f"{rows} of {rollouts} rollouts have a reward of 1")
    return used


def measured(work: Coroutine[Any, Any, object]) -> Used:
    import uvloop  # noqa: PLC0415

    before = Used.now()
    uvloop.run(work)
    return Used.now().since(before)


def in_child(kind: str, checkout: Path, url: str, rollouts: int, concurrency: int) -> Used:
    """The session in a process of its own."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, __file__, "--child", kind, url, str(rollouts), str(concurrency), directory]
        environ = {**os.environ, "PYTHONPATH": str(checkout)}
        done = subprocess.run(command, env=environ, cwd=directory, stdout=subprocess.PIPE, check=True)
    return Used(*json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--few", type=int, default=2000)
    parser.add_argument("--many", type=int, default=20_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--beside", type=Path, help="another checkout of this project, measured in turn")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        kind, url, rollouts, concurrency, directory = args.child
        print(json.dumps({"bare": bare, "session": session}[kind](url, int(rollouts), int(concurrency), Path(directory))))
        return
    contestants = {"ours": ("session", HERE.parent)}
    if args.beside:
        contestants["beside"] = ("session", args.beside.resolve())
    if importlib.util.find_spec("aiohttp"):
        contestants["bare aiohttp"] = ("bare", HERE.parent)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen([sys.executable, str(HERE / "instant_server.py"), "--port", str(port)])
    try:
        time.sleep(1)
        for concurrency in args.concurrency:
            compare(contestants, f"http://127.0.0.1:{port}/v1", concurrency, args)
    finally:
        server.kill()


def compare(contestants: dict[str, tuple[str, Path]], url: str, concurrency: int, args: argparse.Namespace) -> None:
    found: dict[str, list[Used]] = {name: [] for name in contestants}
    for _ in range(args.turns):
        for name, (kind, checkout) in contestants.items():
            few, many = (in_child(kind, checkout, url, count, concurrency) for count in (args.few, args.many))
            found[name].append(many.since(few).each(args.many - args.few))
    print(f"one more rollout at concurrency {concurrency}, medians of {args.turns}; load {os.getloadavg()[0]:.1f}")
    for name, uses in found.items():
        wall, user, system, waits, preemptions = (statistics.median(values) for values in zip(*uses, strict=True))
        total = statistics.median(used.user_s + used.sys_s for used in uses)
        cpu = f"{total * 1e6:4.0f} us CPU ({user * 1e6:.0f} user, {system * 1e6:.0f} sys)"
        switches = f"{waits:.2f} waits, {preemptions:.2f} preemptions"
        print(f"{name:>14}: {cpu}, {1 / wall:,.0f} rollouts/s, {switches}", flush=True)


if __name__ == "__main__":
    main()

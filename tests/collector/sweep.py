"""A program: kill a collector before every disk call it makes, resume, and print what was lost or doubled.

Forks before any thread exists; that is why it is a program of its own and not part of a test process.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections import Counter
from pathlib import Path

from collector.artifacts import RunArtifacts
from collector.shard.store import RolloutStore
from tests.collector.points import Sweep, Tried
from tests.collector.shards import asked, attempt_of, fill, recorded, rollout_ids, rows_of, settings_for, write_dataset
from tests.support import testkit
from tests.support.crash import run_in_fork

_TASKS = [{"n": n, "grade": n % 2} for n in range(4)] + [
    {"n": 4, "grade": 1, "fail": 1},
    {"n": 5, "grade": 1, "fail": 1, "terminal": True},
    {"n": 6, "grade": None},
]


def migrate_point(directory: Path, fatal: int) -> Tried:
    """Kill at disk call ``fatal`` of a session that makes two results failures and retries them, resume, and count."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    write_dataset(directory / "tasks.jsonl", [{"n": n, "grade": 1, "invalid_judge_response": n < 2} for n in range(3)])
    settings = settings_for(directory, num_samples_in_parallel=2, retry={"max_attempts": 6})
    run_in_fork(lambda: fill(settings) and None, 0)
    migrating = settings_for(
        directory, num_samples_in_parallel=2, retry={"max_attempts": 6, "retry_invalid_judge_responses": True}
    )
    status, _ = run_in_fork(lambda: fill(migrating) and None, fatal)
    if run_in_fork(lambda: fill(migrating) and None, 0)[0] != 0:
        return Tried(status != 0, Counter({"resume failed": 1}))
    artifacts = RunArtifacts(settings.output_jsonl_fpath)
    marked = [attempt_of(row) for row in rows_of(artifacts.failures)]
    events = [event for event in rows_of(artifacts.journal) if event["event"] == "migrated"]
    results = [attempt_of(row) for row in rows_of(artifacts.rollouts)]
    wrong: Counter[str] = Counter()
    wrong["migrated without a row, or twice"] = len({*marked} ^ {(e["rollout_id"], e["attempt_index"]) for e in events})
    wrong["doubled"] = len(marked) - len({*marked}) + len(results) - len({*results}) + len(events) - len(marked)
    wrong["asked again"] = asked(directory)["2-0"] - 1
    wrong["missing"] = 3 - len(recorded(RunArtifacts(settings.output_jsonl_fpath)))
    wrong["not migrated"] = sum((f"{n}-0", 0) not in marked for n in range(2))
    return Tried(status != 0, +wrong)


def one_point(directory: Path, fatal: int, prelude: int) -> Tried:
    """Kill at disk call ``fatal`` (after an earlier kill at ``prelude``), resume to the end, and count what went wrong."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    write_dataset(directory / "tasks.jsonl", _TASKS)
    settings = settings_for(directory, num_samples_in_parallel=2, retry={"max_attempts": 6})
    if prelude:
        run_in_fork(lambda: fill(settings) and None, prelude)
    status, _ = run_in_fork(lambda: fill(settings) and None, fatal)
    before, calls = recorded(RunArtifacts(settings.output_jsonl_fpath)), asked(directory)
    if run_in_fork(lambda: fill(settings) and None, 0)[0] != 0:
        return Tried(status != 0, Counter({"resume failed": 1}))
    after, found = recorded(RunArtifacts(settings.output_jsonl_fpath)), rollout_ids(settings.output_jsonl_fpath)
    wrong: Counter[str] = Counter()
    wrong["lost"] = sum(after.get(rollout) != row for rollout, row in before.items())
    wrong["asked again"] = sum(asked(directory)[rollout] != calls[rollout] for rollout in before)
    wrong["doubled"] = len(found) - len(set(found))
    wrong["missing"] = 6 - len(after)
    with RolloutStore.read(RunArtifacts(settings.output_jsonl_fpath)) as store:
        wrong["unrepaired"] = len(store.repairs.lines) + len(store.repairs.recovered) + len(store.repairs.cuts)
    wrong["leftovers"] = len(list(settings.output_jsonl_fpath.parent.glob(".*.tmp")))
    return Tried(status != 0, +wrong)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--prelude", type=int, default=0, help="kill a first session at this disk call, then sweep the second")
    parser.add_argument("--migrate", action="store_true", help="sweep a session that makes results failures")
    parser.add_argument("--step", type=int, default=1)
    args = parser.parse_args()
    testkit.install()
    sweep, point = Sweep(), args.directory / "point"
    sweep.run(
        "migrate" if args.migrate else "fill",
        lambda fatal: migrate_point(point, fatal) if args.migrate else one_point(point, fatal, args.prelude),
        step=args.step,
    )
    sweep.report()
    return 0


if __name__ == "__main__":
    sys.exit(main())

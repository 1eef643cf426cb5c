"""Further shards of a run: unfinished rollouts move from the shards that hold them into new ones, each exactly once.

Order: the new shards as one directory, then the lists of what left the old ones, then the plan. Whoever finds new shards that
the plan does not know completes the move from their inventories. Attempts are numbered from 0 in each shard.
"""

from __future__ import annotations

import resource
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from collector import durable
from collector.artifacts import RunArtifacts
from collector.errors import CorruptArtifactError
from collector.formats.inventory import Inventory
from collector.formats.manifest import Manifest, read_manifest
from collector.formats.moves import Moved, publish_moved, read_moved
from collector.preparation.prepare import write_new_shard
from collector.shard.lock import ShardLock
from orchestrate.runs.creation import part_of
from orchestrate.runs.directory import RunDir, publish_plan, read_plan
from orchestrate.runs.plan import BenchmarkPlan, SubmitPlan, deal

#: Descriptors that a command needs beside those of the locks it holds.
_SPARE_FILES: Final = 256


@contextmanager
def shard_locks(run: RunDir, benchmark: BenchmarkPlan, indexes: Sequence[int]) -> Generator[None]:
    """Hold the locks of these shards. Raises LockHeldError for the first that a collector owns."""
    _allow_files(len(indexes) + _SPARE_FILES)
    with ExitStack() as stack:
        since = datetime.now(UTC).isoformat(timespec="seconds")
        for index in indexes:
            stack.enter_context(ShardLock(run.shard(benchmark, index).lock, since=since))
        yield


def move(run: RunDir, plan: SubmitPlan, lines: Mapping[str, Sequence[bytes]], counts: Mapping[str, int]) -> SubmitPlan:
    """Deal ``lines``, rows of unfinished rollouts by benchmark, to ``counts`` new shards each, and return the plan with them.

    The caller holds the submit lock and the locks of the shards that the rows come from.
    """
    for name, rows in lines.items():
        _stage(run, plan.benchmark(name), rows, counts[name])
    return complete_resubmission(run)


def complete_resubmission(run: RunDir) -> SubmitPlan:
    """Make the plan know every generation of shards that exists, and return it. The caller holds the submit lock."""
    plan = read_plan(run)
    benchmarks = [_complete(run, benchmark) for benchmark in plan.benchmarks]
    if benchmarks != plan.benchmarks:
        plan = plan.model_copy(update={"benchmarks": benchmarks})
        publish_plan(run, plan)
    return plan


def _stage(run: RunDir, benchmark: BenchmarkPlan, rows: Sequence[bytes], count: int) -> None:
    number = len(benchmark.generations) + 1
    base, config = _template(run, benchmark)
    with durable.staged_dir(run.generation(benchmark, number)) as staging:
        hands = deal(len(rows), count, seed=f"{benchmark.inventory_digest}-{number}")
        for position, hand in enumerate(hands):
            part = [rows[row] for row in hand]
            place = base.shard.model_copy(update={"index": benchmark.shards + position}) if base.shard else None
            artifacts = RunArtifacts(staging / f"{position}-of-{count}" / "rollouts.jsonl")
            write_new_shard(artifacts, part, part_of(base, place), config)


def _template(run: RunDir, benchmark: BenchmarkPlan) -> tuple[Manifest, bytes | None]:
    """The manifest and the masked settings that the first shard has."""
    artifacts = run.shard(benchmark, 0)
    manifest = read_manifest(artifacts.manifest)
    if manifest is None:
        raise CorruptArtifactError(artifacts.manifest, 0, "the file is missing and the run's plan exists.")
    return manifest, artifacts.config.read_bytes() if artifacts.config.exists() else None


def _complete(run: RunDir, benchmark: BenchmarkPlan) -> BenchmarkPlan:
    directory = run.generation(benchmark, len(benchmark.generations) + 1)
    durable.sweep(directory)
    if not directory.is_dir():
        return benchmark
    parts = sorted(directory.glob("*-of-*"), key=lambda path: int(path.name.partition("-")[0]))
    owners: dict[str, int] = {}
    sizes: list[int] = []
    for position, part in enumerate(parts):
        ids = _ids(RunArtifacts(part / "rollouts.jsonl").inventory)
        sizes.append(len(ids))
        owners.update(dict.fromkeys(ids, benchmark.shards + position))
    for index in range(benchmark.shards):
        _hand_over(run.shard(benchmark, index), owners)
    sizes = [*benchmark.shard_sizes, *sizes]
    return benchmark.model_copy(update={"shard_sizes": sizes, "generations": [*benchmark.generations, len(parts)]})


def _hand_over(artifacts: RunArtifacts, owners: Mapping[str, int]) -> None:
    """List in a shard which of its rollouts have a new owner; one that left it before stays where it went."""
    moved = read_moved(artifacts)
    leaving = [name for name in _ids(artifacts.inventory) if name in owners and name not in moved]
    if leaving:
        whole = {**moved, **{name: owners[name] for name in leaving}}
        publish_moved(artifacts, [Moved(rollout_id=name, to=to) for name, to in whole.items()])


def _ids(path: Path) -> list[str]:
    inventory = Inventory(path)
    try:
        return list(inventory.index_by_id())
    finally:
        inventory.close()


def _allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

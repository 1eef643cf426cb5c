"""Where a rollout of a run lies, and its story there."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from collector.artifacts import RunArtifacts
from collector.errors import NotFoundError, RequestError
from collector.formats.moves import read_moved
from collector.settings import RetrySettings
from collector.timeline.reading import Timeline, timeline_of
from orchestrate.config.load import settings_of
from orchestrate.runs.directory import RunDir, read_plan
from orchestrate.runs.plan import BenchmarkPlan


@dataclass(frozen=True, slots=True)
class Found:
    """One rollout with its story. ``place`` is ``math shard 3``, or the path of a single run."""

    place: str
    artifacts: RunArtifacts
    timeline: Timeline


def stories_in_run(run: RunDir, rollout_id: str, *, benchmark: str | None = None) -> list[Found]:
    """The story of ``rollout_id`` in each benchmark that has it. Raises NotFoundError when none does."""
    plan = read_plan(run)
    if benchmark is not None and benchmark not in plan.names:
        raise NotFoundError(f"there is no benchmark {benchmark!r}.", f"There are: {', '.join(plan.names)}.", run.root)
    _check_id(rollout_id)
    found: list[Found] = []
    for item in plan.benchmarks:
        if benchmark in (None, item.name):
            retry = settings_of(plan.config, item.name, output=run.merged(item).rollouts).retry
            found += _in_benchmark(run, item, rollout_id, retry)
    if not found:
        sizes = ", ".join(f"{item.name} has {item.expected}" for item in plan.benchmarks)
        raise NotFoundError(f"there is no rollout {rollout_id!r}: {sizes}.", "An id is <task>-<repeat>.", run.root)
    return found


def story_at(path: Path, rollout_id: str, *, retry: RetrySettings) -> Found:
    """The story of ``rollout_id`` in the single run whose rollouts are at ``path``."""
    _check_id(rollout_id)
    artifacts = RunArtifacts(path.absolute())
    return Found(str(path), artifacts, timeline_of(artifacts, rollout_id, retry))


def _in_benchmark(run: RunDir, benchmark: BenchmarkPlan, rollout_id: str, retry: RetrySettings) -> Iterator[Found]:
    for index, artifacts in enumerate(run.shards(benchmark)):
        if _may_have(artifacts.inventory, rollout_id):
            try:
                timeline = timeline_of(artifacts, rollout_id, retry)
            except NotFoundError:
                # The look at the bytes sees numbers that other keys have too.
                continue
            heir = read_moved(artifacts).get(rollout_id)
            left = f", which left it to shard {heir}" if heir is not None else ""
            yield Found(f"{benchmark.name} shard {index}{left}", artifacts, timeline)


def _may_have(inventory: Path, rollout_id: str) -> bool:
    """Whether the inventory can hold the rollout: parsing a thousand of them to find one would take minutes."""
    task, _, repeat = rollout_id.partition("-")
    if not inventory.exists() or not inventory.stat().st_size:
        return False
    with inventory.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(task.encode()) >= 0 and data.find(repeat.encode()) >= 0


def _check_id(rollout_id: str) -> None:
    task, dash, repeat = rollout_id.partition("-")
    if not (dash and task.isdigit() and repeat.isdigit()):
        raise RequestError(f"{rollout_id!r} is not the id of a rollout.", "Write <task>-<repeat>, such as 17-0.")

"""Everything a page says of a run, as values: read from its files, with what cannot be read named instead of left out."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from collector import jsonl
from collector.artifacts import RunArtifacts
from collector.errors import GymEvalError
from collector.formats.manifest import read_manifest
from collector.settings import RetrySettings
from collector.shard.store import RolloutStore
from collector.state.coverage import Coverage, total
from collector.text.counted import counted
from merge.publication.partial import is_current
from merge.publication.receipt import read_receipt
from orchestrate.config.load import settings_of
from orchestrate.counted_under import retry_of
from orchestrate.health import runs_in
from orchestrate.named import named
from orchestrate.report.samples import FailureExample, RowFigures, failures_in, figures_of, row_files
from orchestrate.report.sessions import SessionSpan, spans_of
from orchestrate.rollout_rows import check_rollouts
from orchestrate.runs.directory import RunDir, read_plan


@dataclass(frozen=True, slots=True)
class Place:
    """Where one benchmark lies: its projection, its shards, and how jobs retry."""

    name: str
    merged: RunArtifacts
    shards: tuple[RunArtifacts, ...]
    retry: RetrySettings = field(default_factory=RetrySettings)


@dataclass(slots=True)
class ShardFacts:
    """One shard. ``coverage`` None: ``trouble`` says why."""

    index: int
    coverage: Coverage | None = None
    trouble: str = ""
    sessions: list[SessionSpan] = field(default_factory=list[SessionSpan])
    latencies: array[float] = field(default_factory=lambda: array("d"))
    failures: dict[str, list[FailureExample]] = field(default_factory=dict[str, list[FailureExample]])


@dataclass(slots=True)
class BenchmarkFacts:
    """One benchmark. ``coverage`` None: no shard of it could be counted, or its rows came without a journal."""

    name: str
    coverage: Coverage | None
    shards: list[ShardFacts]
    figures: RowFigures
    #: How the projection stands, in words.
    projection: str
    health: dict[str, Any] | None = None

    @property
    def sessions(self) -> list[SessionSpan]:
        return [span for shard in self.shards for span in shard.sessions]

    @property
    def latencies(self) -> list[float]:
        return list(chain.from_iterable(shard.latencies for shard in self.shards))

    @property
    def failures(self) -> dict[str, list[FailureExample]]:
        found: dict[str, list[FailureExample]] = {}
        for shard in self.shards:
            for kind, examples in shard.failures.items():
                found[kind] = [*found.get(kind, []), *examples][:3]
        return found


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One page's worth."""

    title: str
    path: Path
    benchmarks: tuple[BenchmarkFacts, ...]


def gather(text: str, *, content: bool) -> RunFacts:
    """The facts of what ``text`` names: a run, a benchmark of one, a directory of rollouts, or a rollouts file.

    Raises NotFoundError, and RequestError for a file that holds no rollouts. A shard that cannot be read becomes trouble of
    that shard.
    """
    found = named(text)
    if found.run is None or found.rollouts is not None:
        path = found.path
        if found.rollouts is not None:
            check_rollouts(found.rollouts)
        return RunFacts(path.stem if path.is_file() else path.name, path, _facts(_found(path), content=content))
    title = found.run.root.name if found.benchmark is None else f"{found.run.root.name}/{found.benchmark}"
    return RunFacts(title, found.path, _facts(_planned(found.run, found.benchmark), content=content))


def _planned(run: RunDir, only: str | None) -> list[Place]:
    plan = read_plan(run)
    places: list[Place] = []
    for benchmark in plan.benchmarks:
        if only not in (None, benchmark.name):
            continue
        retry = settings_of(plan.config, benchmark.name, output=run.merged(benchmark).rollouts).retry
        places.append(Place(benchmark.name, run.result(benchmark), tuple(run.shards(benchmark)), retry))
    return places


def _found(path: Path) -> list[Place]:
    """The benchmarks in ``path``. Shards that are not merged yet are one benchmark together, unless one of them is named."""
    grouped: dict[RunArtifacts, list[RunArtifacts]] = {}
    for run in runs_in(path):
        above = run.rollouts.parent.parent
        is_part = above.name == "shards" and path.absolute() not in {run.rollouts.absolute(), run.rollouts.parent.absolute()}
        merged = RunArtifacts(above.parent / run.rollouts.name) if is_part else run
        grouped.setdefault(merged, []).append(run)
    return [_place(merged, parts) for merged, parts in grouped.items()]


def _place(merged: RunArtifacts, parts: Sequence[RunArtifacts]) -> Place:
    if parts[0].manifest.is_file():
        manifest = read_manifest(parts[0].manifest)
        shards = sorted(parts, key=lambda run: _shard_number(run.rollouts))
        name = manifest.benchmark if manifest else merged.rollouts.stem
        return Place(name, merged, tuple(shards), retry_of(shards))
    found = sorted((merged.rollouts.parent / "shards").glob(f"*-of-*/{merged.rollouts.name}"), key=_shard_number)
    receipt = read_receipt(merged.receipt)
    return Place(receipt.benchmark if receipt else merged.rollouts.stem, merged, tuple(map(RunArtifacts, found)))


def _shard_number(path: Path) -> int:
    number = path.parent.name.partition("-")[0]
    return int(number) if number.isdecimal() else 0


def _facts(places: Sequence[Place], *, content: bool) -> tuple[BenchmarkFacts, ...]:
    return tuple(_benchmark(place, content=content) for place in places)


def _benchmark(place: Place, *, content: bool) -> BenchmarkFacts:
    shards = [_shard(index, run, place.retry, content=content) for index, run in enumerate(place.shards)]
    readable = [shard.coverage for shard in shards if shard.coverage is not None]
    missing, health = len(shards) - len(readable), _health(place.merged)
    unreadable = [f"cannot be read: {counted(missing, 'shard')}"] if missing else []
    unreadable += ["its health report cannot be read"] if health is None and place.merged.health.exists() else []
    return BenchmarkFacts(
        name=place.name,
        coverage=total(readable, expected=max(map(_whole_expected, place.shards))) if readable else None,
        shards=shards,
        figures=figures_of(row_files(place.merged, place.shards), content=content),
        projection="; ".join([_projection(place, readable), *unreadable]),
        health=health,
    )


def _whole_expected(run: RunArtifacts) -> int:
    try:
        manifest = read_manifest(run.manifest)
    except (GymEvalError, OSError):
        return 0
    return manifest.shard.whole_expected if manifest is not None and manifest.shard is not None else 0


def _shard(index: int, run: RunArtifacts, retry: RetrySettings, *, content: bool) -> ShardFacts:
    facts = ShardFacts(index)
    try:
        with RolloutStore.read(run) as store:
            facts.coverage = store.coverage(retry)
            facts.latencies = array("d", (s for s in store.history.elapsed if not math.isnan(s)))
            facts.failures = failures_in(store, content=content)
        facts.sessions = spans_of(run.journal, index)
    except (GymEvalError, OSError, ValueError) as error:
        facts.trouble = " ".join(str(error).split())
    return facts


def _projection(place: Place, shards: Sequence[Coverage]) -> str:
    try:
        receipt = read_receipt(place.merged.receipt)
    except GymEvalError as error:
        return f"not merged: {error}"
    if receipt is not None:
        is_older = len(shards) == len(place.shards) > 0 and not is_current(place.merged, total(shards))
        notes = [note for note, is_so in (("partial", receipt.partial), ("older than its shards", is_older)) if is_so]
        noted = f" ({', '.join(notes)})" if notes else ""
        return f"merged: {counted(receipt.output.rows, 'row')}{noted}"
    return "one shard, its rows are the result" if place.merged in place.shards else "not merged"


def _health(merged: RunArtifacts) -> dict[str, Any] | None:
    try:
        value = jsonl.loads(merged.health.read_bytes())
    except (OSError, ValueError):
        return None
    run = value.get("run") if isinstance(value, dict) else None
    counts = [run.get(name) for name in ("verdicts", "issues")] if isinstance(run, dict) else []
    return value if counts and all(map(_are_counts, counts)) else None


def _are_counts(values: object) -> bool:
    return isinstance(values, dict) and all(type(count) is int and count >= 0 for count in values.values())


def each_failure(facts: BenchmarkFacts) -> Iterator[tuple[str, int, list[FailureExample]]]:
    """Kind, count and examples, most frequent first."""
    counts = facts.coverage.failures_by_kind if facts.coverage else {}
    for kind, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        yield kind, count, facts.failures.get(kind, [])

"""Whether what is published of a benchmark still tells of its shards: one that was opened again went on without it."""

from __future__ import annotations

from collections.abc import Sequence

from collector.artifacts import RunArtifacts
from collector.state.coverage import total
from merge.publication.partial import is_current
from orchestrate.runs.directory import RunDir, read_plan
from orchestrate.runs.plan import BenchmarkPlan
from orchestrate.runs.shard_facts import KnownShards


def is_older(run: RunDir, benchmark: BenchmarkPlan, published: RunArtifacts) -> bool:
    """Whether the shards recorded anything since ``published`` was made of them. Raises what reading a shard raises."""
    known = KnownShards(run)
    return not is_current(published, total([known.recorded(shard) for shard in run.shards(benchmark)]))


def older_results(run: RunDir, results: Sequence[RunArtifacts]) -> list[RunArtifacts]:
    """Those of ``results`` that are the whole result of a benchmark, and older than its shards."""
    wanted = {result.rollouts.absolute(): result for result in results}
    found: list[RunArtifacts] = []
    for benchmark in read_plan(run).benchmarks:
        result = wanted.get(run.merged(benchmark).rollouts.absolute())
        if result is not None and result.receipt.exists() and is_older(run, benchmark, result):
            found.append(result)
    return found

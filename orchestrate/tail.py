"""What follows the last shard of a benchmark: one projection, its coverage and metrics, and the configured exports."""

from __future__ import annotations

from collector.settings import RunSettings
from merge.tail import MergeState, merge_when_final
from orchestrate.plan import BenchmarkPlan
from orchestrate.rundir import RunDir


def finish_benchmark(run: RunDir, benchmark: BenchmarkPlan, settings: RunSettings) -> str:
    """Merge the benchmark if every shard is final, and say in one line what was done. Repeating it changes nothing."""
    outcome = merge_when_final(run.merged(benchmark), run.shards(benchmark), benchmark=benchmark.name, retry=settings.retry)
    if outcome.state is MergeState.WAITING:
        left = outcome.coverage.unfinished
        return f"the benchmark waits for other shards ({left} rollouts are unfinished)"
    return f"{outcome.state.replace('_', ' ')}: {run.merged(benchmark).rollouts}"

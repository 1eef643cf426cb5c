"""Which shards of a run need a job: what its files say, who holds a lock, and one question to the scheduler."""

from __future__ import annotations

from collections.abc import Sequence

from collector.lock import is_held
from collector.settings import RunSettings
from collector.store import RolloutStore
from orchestrate.config.load import settings_of
from orchestrate.executors.base import Executor
from orchestrate.plan import BenchmarkPlan, SubmitPlan
from orchestrate.rundir import RunDir
from orchestrate.submissions import ShardNeed, Submission, shard_needs
from orchestrate.tail import is_finished


def needs_of(
    run: RunDir, plan: SubmitPlan, executor: Executor, submissions: Sequence[Submission]
) -> dict[str, dict[int, ShardNeed]]:
    """What every shard of the run needs, after one question to the scheduler."""
    facts = executor.scheduler.ask({s.token: list(s.jobs.values()) for s in submissions if s.jobs})
    found: dict[str, dict[int, ShardNeed]] = {}
    for benchmark in plan.benchmarks:
        indexes = range(benchmark.shards)
        settings = settings_of(plan.config, benchmark.name, output=run.merged(benchmark).rollouts)
        mine = [submission for submission in submissions if submission.prepared.benchmark == benchmark.name]
        final = {index: _is_final(run, benchmark, index, settings) for index in indexes}
        needs = shard_needs(indexes, final=final, submissions=mine, facts=facts)
        # Asking takes the lock for a moment, in which a job that is just starting would find it taken: only where it matters.
        found[benchmark.name] = {
            index: ShardNeed.LIVE if need is ShardNeed.JOB and is_held(run.shard(benchmark, index).lock) else need
            for index, need in needs.items()
        }
        if set(found[benchmark.name].values()) == {ShardNeed.FINAL} and not is_finished(run, benchmark):
            # Any job finishes its benchmark; one whose shard is final starts no services on the way.
            found[benchmark.name][0] = ShardNeed.JOB
    return found


def _is_final(run: RunDir, benchmark: BenchmarkPlan, index: int, settings: RunSettings) -> bool:
    with RolloutStore.read(run.shard(benchmark, index)) as store:
        return store.coverage(settings.retry).is_final

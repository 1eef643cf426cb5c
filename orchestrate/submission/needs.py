"""Which jobs a run needs: what its files say, who holds a lock, and one question to the scheduler."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from collector.errors import BrokenInventoryError
from collector.settings import RunSettings
from collector.shard.lock import is_held
from collector.shard.store import RolloutStore
from orchestrate.config.load import settings_of
from orchestrate.executors.base import Executor
from orchestrate.jobs.tail import is_finished
from orchestrate.runs.directory import RunDir
from orchestrate.runs.plan import BenchmarkPlan, SubmitPlan
from orchestrate.runs.submissions import (
    Outcome,
    ShardNeed,
    Submission,
    has_live_finisher,
    latest_finisher,
    latest_jobs,
    questions,
    shard_needs,
)
from orchestrate.scheduler import JobFact
from orchestrate.submission.export_settings import known_environ


@dataclass(frozen=True, slots=True)
class Needs:
    """What every shard of a run needs, by benchmark and index, and what the scheduler said of every job."""

    shards: dict[str, dict[int, ShardNeed]]
    facts: Mapping[str, JobFact] = field(default_factory=dict[str, JobFact])
    #: Benchmarks whose shards are all final and which nobody finished: a job does it, and needs no finisher behind it.
    finishing: frozenset[str] = frozenset()


def ask_needs(run: RunDir, plan: SubmitPlan, executor: Executor, submissions: Sequence[Submission]) -> Needs:
    """What the run needs now, after one question to the scheduler."""
    facts = executor.scheduler.ask(questions(submissions))
    found: dict[str, dict[int, ShardNeed]] = {}
    finishing: set[str] = set()
    environ = known_environ(plan.config, os.environ)
    for benchmark in plan.benchmarks:
        needs = _of_benchmark(run, plan, benchmark, [s for s in submissions if s.prepared.benchmark == benchmark.name], facts)
        is_left = not has_live_finisher(submissions, benchmark.name, facts) and not is_finished(run, benchmark, environ)
        if set(needs.values()) == {ShardNeed.FINAL} and is_left:
            # Any job finishes its benchmark; one whose shard is final starts no services on the way.
            needs[0] = ShardNeed.JOB
            finishing.add(benchmark.name)
        found[benchmark.name] = needs
    return Needs(found, facts, frozenset(finishing))


def finisher_after(
    benchmark: str, needs: Needs, submissions: Sequence[Submission], *, submitted: Sequence[str], is_new: bool
) -> tuple[str, ...]:
    """The jobs that a finisher has to follow; none when there is no need for one.

    ``submitted`` are the jobs of this command, ``is_new`` says whether there are any for shards that are not final.
    """
    if benchmark in needs.finishing:
        return ()
    jobs = latest_jobs(submissions, benchmark)
    live = [jobs[index] for index, need in needs.shards[benchmark].items() if need is ShardNeed.LIVE and index in jobs]
    newest = latest_finisher(submissions, benchmark)
    if not is_new and newest is not None and not _is_over(newest, needs.facts):
        return ()
    packed = {job_id for s in submissions if s.is_packed for job_id in s.jobs.values()}
    # A finisher of the whole array waits for each of its tasks; tasks of a packed one may be of other benchmarks alone.
    return tuple(dict.fromkeys(job_id if job_id in packed else job_id.partition("_")[0] for job_id in [*live, *submitted]))


def _is_over(finisher: Submission, facts: Mapping[str, JobFact]) -> bool:
    if finisher.outcome is Outcome.OPEN:
        return False
    return all(job_id in facts and facts[job_id].is_over for job_id in finisher.jobs.values())


def _of_benchmark(
    run: RunDir, plan: SubmitPlan, benchmark: BenchmarkPlan, mine: Sequence[Submission], facts: Mapping[str, JobFact]
) -> dict[int, ShardNeed]:
    indexes = range(benchmark.shards)
    settings = settings_of(plan.config, benchmark.name, output=run.merged(benchmark).rollouts)
    final = {index: _is_final(run, benchmark, index, settings) for index in indexes}
    needs = shard_needs(indexes, final=final, submissions=mine, facts=facts)
    # Asking takes the lock for a moment, in which a job that is just starting would find it taken: only where it matters.
    return {
        index: ShardNeed.LIVE if need is ShardNeed.JOB and is_held(run.shard(benchmark, index).lock) else need
        for index, need in needs.items()
    }


def _is_final(run: RunDir, benchmark: BenchmarkPlan, index: int, settings: RunSettings) -> bool:
    try:
        with RolloutStore.read(run.shard(benchmark, index)) as store:
            return not store.needs_session(settings.retry)
    except BrokenInventoryError:
        # Its job makes it whole, or says why that cannot be.
        return False

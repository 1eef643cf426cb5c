"""How far a run is: what its own files say and what the scheduler says, side by side, and how old each is.

Holds no state. Works without accounting, from another machine, and after the scheduler has forgotten the jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from pydantic import Field

from collector.artifacts import RunArtifacts
from collector.coverage import Coverage, total
from collector.errors import GymEvalError
from collector.settings import RetrySettings, StrictModel
from collector.store import RolloutStore
from orchestrate.config.load import settings_of
from orchestrate.executors.base import executor_for
from orchestrate.plan import BenchmarkPlan, SubmitPlan
from orchestrate.rundir import RunDir, read_plan
from orchestrate.scheduler import JobFact, Knowledge
from orchestrate.submissions import Submission, latest_jobs, read_submissions


class ShardReport(StrictModel):
    """One shard. ``knowledge`` and ``job_state`` are the scheduler's words of its newest job, null when it never had one."""

    index: int
    expected: int
    completed: int = 0
    failed: int = 0
    final: bool = False
    sessions: int = 0
    job_id: str | None = None
    knowledge: Knowledge | None = None
    job_state: str | None = None
    detail: str = ""
    #: Seconds since the shard's last journal event; null before its first.
    age_s: float | None = None
    #: Why the shard's files cannot be read.
    trouble: str | None = None


class BenchmarkReport(StrictModel):
    """One benchmark: the coverage over its readable shards and each shard."""

    name: str
    coverage: Coverage | None
    mean_reward: float | None
    measured: int
    expected: int
    merged: str | None
    shards: list[ShardReport]

    @property
    def is_final(self) -> bool:
        """Whether nothing of the benchmark may be dispatched any more."""
        return all(shard.final for shard in self.shards)


class RunReport(StrictModel):
    """Everything ``gym eval status`` shows."""

    name: str
    run_dir: str
    asked_at: str
    #: Why the scheduler could not be asked; null when it answered.
    scheduler_trouble: str | None
    benchmarks: list[BenchmarkReport] = Field(default_factory=list)

    @property
    def is_final(self) -> bool:
        """Whether nothing of the run may be dispatched any more."""
        return all(benchmark.is_final for benchmark in self.benchmarks)

    @property
    def has_live_jobs(self) -> bool:
        """Whether a job is queued or running, or may be because the scheduler could not be asked."""
        shards = [shard for benchmark in self.benchmarks for shard in benchmark.shards]
        return any(
            shard.knowledge is Knowledge.COULD_NOT_ASK
            or (shard.knowledge is Knowledge.KNOWN and JobFact(Knowledge.KNOWN, shard.job_state or "").is_live)
            for shard in shards
        )


def report(run: RunDir) -> RunReport:
    """The run as it stands now. Raises NotFoundError when there is none; a broken shard is reported, not raised."""
    plan = read_plan(run)
    submissions = read_submissions(run.submissions)
    newest = {benchmark.name: latest_jobs(submissions, benchmark.name) for benchmark in plan.benchmarks}
    facts = executor_for(run, plan).scheduler.ask(_newest_only(submissions, newest))
    unknown = [fact.detail for fact in facts.values() if fact.knowledge is Knowledge.COULD_NOT_ASK]
    return RunReport(
        name=plan.name,
        run_dir=str(run.root),
        asked_at=datetime.now(UTC).isoformat(timespec="seconds"),
        scheduler_trouble=unknown[0] if unknown else None,
        benchmarks=[_benchmark(run, plan, benchmark, newest[benchmark.name], facts) for benchmark in plan.benchmarks],
    )


def _newest_only(submissions: list[Submission], newest: Mapping[str, Mapping[int, str]]) -> dict[str, list[str]]:
    wanted = {job_id for jobs in newest.values() for job_id in jobs.values()}
    return {s.token: ids for s in submissions if (ids := [job_id for job_id in s.jobs.values() if job_id in wanted])}


def _benchmark(
    run: RunDir, plan: SubmitPlan, benchmark: BenchmarkPlan, jobs: Mapping[int, str], facts: Mapping[str, JobFact]
) -> BenchmarkReport:
    retry = settings_of(plan.config, benchmark.name, output=run.merged(benchmark).rollouts).retry
    shards: list[ShardReport] = []
    parts: list[Coverage] = []
    for index, artifacts in enumerate(run.shards(benchmark)):
        base = _job_part(index, benchmark, jobs.get(index), facts)
        try:
            shard, coverage = _read_shard(base, artifacts, retry)
            parts.append(coverage)
        except GymEvalError as error:
            shard = base.model_copy(update={"trouble": str(error)})
        shards.append(shard)
    coverage = total(parts) if parts else None
    merged = run.merged(benchmark).rollouts
    return BenchmarkReport(
        name=benchmark.name,
        coverage=coverage,
        mean_reward=coverage.mean if coverage else None,
        measured=coverage.measured if coverage else 0,
        expected=benchmark.expected,
        merged=str(merged) if merged.exists() else None,
        shards=shards,
    )


def _job_part(index: int, benchmark: BenchmarkPlan, job_id: str | None, facts: Mapping[str, JobFact]) -> ShardReport:
    fact = facts[job_id] if job_id is not None else None
    return ShardReport(
        index=index,
        expected=benchmark.shard_sizes[index],
        job_id=job_id,
        knowledge=fact.knowledge if fact else None,
        job_state=fact.state or None if fact else None,
        detail=fact.detail if fact and fact.detail not in {"None", fact.state} else "",
    )


def _read_shard(base: ShardReport, artifacts: RunArtifacts, retry: RetrySettings) -> tuple[ShardReport, Coverage]:
    with RolloutStore.read(artifacts) as store:
        coverage = store.coverage(retry)
        facts = {
            "completed": coverage.completed,
            "failed": sum(coverage.failures_by_kind.values()),
            "final": coverage.is_final,
            "sessions": len(store.history.sessions),
            "age_s": _age_s(store.history.last_at),
        }
    return base.model_copy(update=facts), coverage


def _age_s(at: str) -> float | None:
    if not at:
        return None
    return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds())

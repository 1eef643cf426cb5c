"""How far a run is: what its own files say and what the scheduler says, side by side, and how old each is.

Holds no state. Works without accounting, from another machine, and after the scheduler has forgotten the jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from collector.artifacts import RunArtifacts
from collector.errors import GymEvalError
from collector.settings import RetrySettings
from collector.state.coverage import Coverage, total
from exporters.ledger import ExportEvent, Standing, read_events, standing
from merge.publication.partial import is_current
from merge.publication.receipt import Receipt, read_receipt
from orchestrate.config.load import settings_of
from orchestrate.executors.base import executor_for
from orchestrate.run_words import shards_in_words
from orchestrate.runs.directory import RunDir, read_plan
from orchestrate.runs.plan import BenchmarkPlan, SubmitPlan
from orchestrate.runs.shard_facts import KnownShards, RecordedShard
from orchestrate.runs.submissions import (
    Outcome,
    Submission,
    latest_finisher,
    latest_jobs,
    questions,
    read_submissions,
    unanswered_or_refused,
)
from orchestrate.scheduler import JobFact, Knowledge
from orchestrate.status.last_words import reasons
from orchestrate.status.report import BenchmarkReport, ExportReport, RunReport, ShardReport
from orchestrate.status.waiting_jobs import with_waits

#: Seconds that somebody at a prompt waits for the scheduler; what the files say is shown in any case.
_LOOK_S: Final = 5.0


def report(run: RunDir, *, benchmark: str | None = None) -> RunReport:
    """The run, or one benchmark of it, as it stands now. Raises NotFoundError when there is none.

    A broken shard is reported, not raised.
    """
    plan = read_plan(run)
    submissions = read_submissions(run.submissions)
    newest = {name: latest_jobs(submissions, name) for name in plan.names}
    finishers = {name: found.jobs for name in plan.names if (found := latest_finisher(submissions, name)) is not None}
    asked = _newest_only(submissions, [*newest.values(), *finishers.values()])
    facts = executor_for(run, plan).scheduler.ask(asked, limit_s=_LOOK_S)
    shards = KnownShards(run)
    unknown = [fact.detail for fact in facts.values() if fact.knowledge is Knowledge.COULD_NOT_ASK]
    found = RunReport(
        name=plan.name,
        run_dir=str(run.root),
        asked_at=datetime.now(UTC).isoformat(timespec="seconds"),
        scheduler_trouble=unknown[0] if unknown else None,
        benchmarks=[
            _with_submissions(
                _with_endings(_benchmark(run, plan, item, known=shards, jobs=newest[item.name], facts=facts), run, item),
                run,
                item,
                submissions,
                finisher_state=_state_of(finishers.get(item.name, {}), facts),
            )
            for item in plan.benchmarks
            if benchmark in (None, item.name)
        ],
    )
    shards.keep()
    return found


def _with_endings(found: BenchmarkReport, run: RunDir, benchmark: BenchmarkPlan) -> BenchmarkReport:
    left = {shard.index for shard in found.left_alone}
    return found.model_copy(update={"job_endings": reasons(run, benchmark, left)}) if left else found


def _with_submissions(
    found: BenchmarkReport,
    run: RunDir,
    benchmark: BenchmarkPlan,
    submissions: Sequence[Submission],
    *,
    finisher_state: str | None,
) -> BenchmarkReport:
    unfinished = {shard.index for shard in found.shards if not shard.final}
    troubles = [
        f"{shards_in_words(indexes)} {_trouble_of(submission)}"
        for submission in unanswered_or_refused(submissions, found.name)
        if (indexes := sorted(unfinished & set(submission.prepared.indexes)))
    ]
    shards = with_waits(found.shards, run, benchmark, submissions)
    return found.model_copy(update={"finisher_state": finisher_state, "submission_troubles": troubles, "shards": shards})


def _trouble_of(submission: Submission) -> str:
    if submission.outcome is Outcome.FAILED:
        return f"not submitted: {submission.reason}"
    return "submitted without an answer: the same gym eval submit finds out whether its jobs exist"


def _state_of(jobs: Mapping[int, str], facts: Mapping[str, JobFact]) -> str | None:
    return next((facts[job_id].state or None for job_id in jobs.values()), None)


def _newest_only(submissions: list[Submission], newest: Iterable[Mapping[int, str]]) -> dict[str, list[str]]:
    wanted = {job_id for jobs in newest for job_id in jobs.values()}
    return {token: found for token, ids in questions(submissions).items() if (found := sorted(ids & wanted))}


def _benchmark(
    run: RunDir,
    plan: SubmitPlan,
    benchmark: BenchmarkPlan,
    *,
    known: KnownShards,
    jobs: Mapping[int, str],
    facts: Mapping[str, JobFact],
) -> BenchmarkReport:
    retry = settings_of(plan.config, benchmark.name, output=run.merged(benchmark).rollouts).retry
    shards, parts = _shards(run, benchmark, retry, known=known, jobs=jobs, facts=facts)
    coverage = total(parts, expected=benchmark.expected) if parts else None
    merged = run.result(benchmark)
    receipt = _receipt(merged)
    whole = run.merged(benchmark)
    is_readable = len(parts) == len(shards)
    return BenchmarkReport(
        name=benchmark.name,
        coverage=coverage,
        mean_reward=coverage.mean if coverage else None,
        mean_reward_bounds=coverage.bounds if coverage else None,
        measured=coverage.measured if coverage else 0,
        expected=benchmark.expected,
        merged=str(merged.rollouts) if merged.rollouts.exists() else None,
        merged_partially=receipt is not None and receipt.partial,
        merged_is_older=receipt is not None and coverage is not None and is_readable and not is_current(merged, coverage),
        older_result=str(whole.rollouts) if merged != whole and whole.receipt.exists() else None,
        exports=_exports(benchmark, merged, receipt),
        shards=shards,
    )


def _shards(
    run: RunDir,
    benchmark: BenchmarkPlan,
    retry: RetrySettings,
    *,
    known: KnownShards,
    jobs: Mapping[int, str],
    facts: Mapping[str, JobFact],
) -> tuple[list[ShardReport], list[Coverage]]:
    """Every shard of ``benchmark``, and the coverage of each that can be read."""
    shards: list[ShardReport] = []
    parts: list[Coverage] = []
    places = run.shards(benchmark)
    known.look_at(places, retry)
    for index, artifacts in enumerate(places):
        job = _job_part(jobs.get(index), facts)
        try:
            found = known.of(artifacts, retry)
        except GymEvalError as error:
            shards.append(ShardReport(index=index, expected=benchmark.shard_sizes[index], trouble=str(error), **job))
            continue
        parts.append(found.coverage)
        shards.append(ShardReport(index=index, **_recorded_part(found), **job))
    return shards, parts


def _receipt(merged: RunArtifacts) -> Receipt | None:
    # A broken receipt is the merge's own business: it says so, and the next job makes a new one.
    with suppress(GymEvalError):
        return read_receipt(merged.receipt)
    return None


def _exports(benchmark: BenchmarkPlan, merged: RunArtifacts, receipt: Receipt | None) -> list[ExportReport]:
    """By the ledger alone: an exporter's package need not be installed where status is asked."""
    try:
        events = read_events(merged.exports)
    except GymEvalError as error:
        return [ExportReport(name=name, standing=Standing.INTERRUPTED, detail=str(error)) for name in benchmark.export]
    digest = receipt.output.sha256 if receipt is not None else ""
    return [
        _export(name, [e for e in events if (e.exporter, e.projection_sha256) == (name, digest)]) for name in benchmark.export
    ]


def _export(name: str, events: list[ExportEvent]) -> ExportReport:
    if not events:
        return ExportReport(name=name, standing=Standing.NEVER)
    last = events[-1]
    detail = last.destination if last.event == "succeeded" else last.reason
    return ExportReport(name=name, standing=standing(events, last.destination, last.projection_sha256), detail=detail)


def _job_part(job_id: str | None, facts: Mapping[str, JobFact]) -> dict[str, Any]:
    if job_id is None:
        return {}
    fact = facts[job_id]
    return {
        "job_id": job_id,
        "knowledge": fact.knowledge,
        "job_state": fact.state or None,
        "detail": fact.detail if fact.detail not in {"None", fact.state} else "",
    }


def _recorded_part(found: RecordedShard) -> dict[str, Any]:
    coverage = found.coverage
    return {
        # Rollouts that were planned anew are counted in the shard that has them now.
        "expected": coverage.expected,
        "completed": coverage.completed,
        "failed": sum(coverage.failures_by_kind.values()),
        "final": coverage.is_final,
        "sessions": found.sessions,
        "age_s": _age_s(found.last_at),
    }


def _age_s(at: str) -> float | None:
    if not at:
        return None
    return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds())

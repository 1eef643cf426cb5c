"""What the jobs of a run spent, and how much of it is in the score: from journals and receipts, and from sacct when it is on.

Job hours are wall-clock hours of jobs, whatever they were given. Without accounting a session stands for the run of its job;
queueing and start-up cannot be told apart then, and are null.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from pydantic import Field

from collector.artifacts import RunArtifacts
from collector.errors import GymEvalError
from collector.formats import events
from collector.formats.events import (
    Dispatched,
    Event,
    Failed,
    Lost,
    Migrated,
    OmittedEvent,
    SessionEnded,
    SessionStarted,
    Success,
)
from collector.formats.inventory import line_blocks
from collector.formats.moves import read_moved
from collector.settings import StrictModel
from collector.state.codes import Code
from collector.state.history import History
from orchestrate.operate.accounting import BookedRun, job_runs
from orchestrate.runs.directory import RunDir, read_plan
from orchestrate.runs.submissions import Submission, read_submissions


class BenchmarkWaste(StrictModel):
    """Where the job hours of one benchmark went. Seconds are summed over its jobs; null: cannot be known."""

    benchmark: str
    measured: int = 0
    sessions: int = 0
    job_s: float = 0.0
    #: From submission, or from a requeue, to the start of the job.
    queued_s: float | None = None
    #: From a job's start to its collector's session: services that become ready, mostly.
    startup_s: float | None = None
    #: Of sessions that were killed: from the last thing they recorded to the end of their job.
    preempted_s: float = 0.0
    #: Requests whose attempt was cut off, so that they were asked again.
    interrupted_attempts: int = 0
    #: Of each shard's latest session, when it has no end yet: attempts without an outcome. They may be in flight.
    open_attempts: int = 0
    #: What attempts took that failed; measured attempts of the same rollouts came later or never.
    failed_attempts: int = 0
    failed_attempts_s: float = 0.0

    @property
    def job_hours_per_rollout(self) -> float | None:
        """Job hours for each measured rollout; None when none was measured."""
        return self.job_s / 3600 / self.measured if self.measured else None


class WasteReport(StrictModel):
    """The same for a run."""

    name: str
    #: Why sacct could not be asked; null when it answered.
    accounting_trouble: str | None
    benchmarks: list[BenchmarkWaste] = Field(default_factory=list)
    #: Shards that are not in the figures, since their journal cannot be read.
    troubles: list[str] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Session:
    """One incarnation of a collector: what it recorded and when it recorded last."""

    job_id: str | None
    started_at: datetime
    last_at: datetime
    was_killed: bool


def waste_of(run: RunDir) -> WasteReport:
    """The waste of ``run``. Raises NotFoundError when there is none; an unreadable journal is named in ``troubles``."""
    plan = read_plan(run)
    submissions = read_submissions(run.submissions)
    runs, trouble = job_runs(submissions) if plan.config.the_compute.type == "slurm" else ({}, "jobs of this machine")
    report = WasteReport(name=plan.name, accounting_trouble=trouble)
    counted: list[tuple[BenchmarkWaste, list[Session]]] = []
    for benchmark in plan.benchmarks:
        total = BenchmarkWaste(benchmark=benchmark.name)
        sessions: list[Session] = []
        for artifacts in run.shards(benchmark):
            try:
                total = _with_shard(total, list(_journal(artifacts)), read_moved(artifacts), sessions)
            except (ValueError, OSError, GymEvalError) as error:
                report.troubles.append(f"{artifacts.journal}: {error}")
        counted.append((total, sessions))
    owners = _owners(submissions)
    everyone: dict[str | None, list[Session]] = {}
    for session in (session for _, found in counted for session in found):
        everyone.setdefault(session.job_id, []).append(session)
    spent = {total.benchmark: _seconds_by_job(sessions) for total, sessions in counted}
    for total, sessions in counted:
        mine = [
            replace(item, share=_share(total.benchmark, owners[job_id], spent, job_id))
            for job_id in owners
            if total.benchmark in owners[job_id]
            for item in runs.get(job_id, [])
        ]
        report.benchmarks.append(_with_jobs(total, sessions, mine, everyone))
    return report


def _owners(submissions: Iterable[Submission]) -> dict[str, set[str]]:
    """The benchmarks of each job; a packed one has several."""
    found: dict[str, set[str]] = {}
    for submission in submissions:
        for job_id in submission.jobs.values():
            found.setdefault(job_id, set()).add(submission.prepared.benchmark)
    return found


def _seconds_by_job(sessions: Iterable[Session]) -> dict[str | None, float]:
    found: dict[str | None, float] = {}
    for session in sessions:
        found[session.job_id] = found.get(session.job_id, 0.0) + (session.last_at - session.started_at).total_seconds()
    return found


def _share(benchmark: str, owners: set[str], spent: Mapping[str, Mapping[str | None, float]], job_id: str) -> float:
    """Which part of a job is a benchmark's: by the time of its sessions in it, so that no second is counted twice."""
    whole = sum(spent[name].get(job_id, 0.0) for name in owners)
    return spent[benchmark].get(job_id, 0.0) / whole if whole else 1 / len(owners)


def _with_shard(
    total: BenchmarkWaste, events_of_shard: list[Event], moved: Collection[str], sessions: list[Session]
) -> BenchmarkWaste:
    """``total`` and one shard. Raises ValueError for a journal that says what no collector writes."""
    history = _fold(events_of_shard, moved)
    failures = [event for event in events_of_shard if isinstance(event, Failed | Migrated)]
    found = sessions_of(events_of_shard)
    sessions += found
    dispatched = sum(history.latest) + len(history.latest)
    recorded = sum(bits.bit_count() for bits in history.recorded)
    still_open = _open_attempts(events_of_shard, moved)
    return total.model_copy(
        update={
            "measured": total.measured + history.codes.count(Code.MEASURED),
            "sessions": total.sessions + len(found),
            "interrupted_attempts": total.interrupted_attempts + dispatched - recorded - still_open,
            "open_attempts": total.open_attempts + still_open,
            "failed_attempts": total.failed_attempts + len(failures),
            "failed_attempts_s": total.failed_attempts_s + sum(event.elapsed_s or 0.0 for event in failures),
        }
    )


def _open_attempts(events_of_shard: list[Event], moved: Collection[str]) -> int:
    """Attempts of the latest session without an outcome while it has no end: nothing in a journal tells work from death."""
    latest = max((event.session for event in events_of_shard if isinstance(event, SessionStarted)), default=None)
    last_ones = [event for event in events_of_shard if event.session == latest]
    if any(isinstance(event, SessionEnded) for event in last_ones):
        return 0
    sent = {(e.rollout_id, e.attempt_index) for e in last_ones if isinstance(e, Dispatched) and e.rollout_id not in moved}
    outcomes = [e for e in last_ones if isinstance(e, Success | Failed | Migrated | OmittedEvent | Lost)]
    return len(sent - {(e.rollout_id, e.attempt_index) for e in outcomes})


def _fold(events_of_shard: list[Event], moved: Collection[str]) -> History:
    """The states of the rollouts that a journal names: a result may be lost, late, or a failure by now."""
    names = dict.fromkeys(e.rollout_id for e in events_of_shard if not isinstance(e, SessionStarted | SessionEnded))
    index = {name: position for position, name in enumerate(names)}
    history = History(len(index), keeps_rows=False)
    history.fold(events_of_shard, index, events_of_shard[0].run_id if events_of_shard else "")
    for name in moved:
        if name in index:
            history.move(index[name])
    return history


def sessions_of(history: Iterable[Event]) -> list[Session]:
    """The sessions in a journal. A killed one lasts until the last thing it recorded. Pure."""
    started: dict[int, SessionStarted] = {}
    last: dict[int, str] = {}
    ended: set[int] = set()
    for event in history:
        if isinstance(event, SessionStarted):
            started[event.session] = event
        if event.at:
            last[event.session] = event.at
        if isinstance(event, SessionEnded):
            ended.add(event.session)
    return [
        Session(event.job_id, datetime.fromisoformat(event.at), datetime.fromisoformat(last[number]), number not in ended)
        for number, event in started.items()
    ]


def _with_jobs(
    total: BenchmarkWaste, sessions: list[Session], runs: list[BookedRun], everyone: Mapping[str | None, list[Session]]
) -> BenchmarkWaste:
    """``everyone`` are all sessions of each job: what a packed one did before or after a session is no idle time."""
    if not runs:
        return total.model_copy(update={"job_s": sum((s.last_at - s.started_at).total_seconds() for s in sessions)})
    queued = sum(r.share * (r.started_at - r.queued_at).total_seconds() for r in runs if r.started_at is not None)
    startup, preempted = 0.0, 0.0
    for session in sessions:
        mine = _run_of(session, runs)
        if mine is None or mine.started_at is None:
            continue
        beside = [other for other in everyone[session.job_id] if _run_of(other, runs) == mine]
        if all(session.started_at <= other.started_at for other in beside):
            startup += max(0.0, (session.started_at - mine.started_at).total_seconds())
        is_last = all(session.last_at >= other.last_at for other in beside)
        if session.was_killed and is_last and mine.ended_at is not None:
            preempted += max(0.0, (mine.ended_at - session.last_at).total_seconds())
    update = {
        "job_s": sum(r.share * r.elapsed_s for r in runs),
        "queued_s": queued,
        "startup_s": startup,
        "preempted_s": preempted,
    }
    return total.model_copy(update=update)


def _run_of(session: Session, runs: list[BookedRun]) -> BookedRun | None:
    """The run of the session's job that was going on when the session began."""
    fitting = [
        run
        for run in runs
        if run.job_id == session.job_id and run.started_at is not None and run.started_at <= session.started_at
    ]
    return max(fitting, key=lambda run: run.started_at or run.queued_at, default=None)


def _journal(artifacts: RunArtifacts) -> Iterator[Event]:
    for block in line_blocks(artifacts.journal):
        whole, newline, _torn = block.rpartition(b"\n")
        yield from events.parse_many(whole + newline)

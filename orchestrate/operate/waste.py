"""What the jobs of a run spent, and how much of it is in the score: from journals and receipts, and from sacct when it is on.

Job hours are wall-clock hours of jobs, whatever they were given. Without accounting a session stands for the run of its job;
queueing and start-up cannot be told apart then, and are null.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pydantic import Field

from collector import events
from collector.artifacts import RunArtifacts
from collector.errors import GymEvalError
from collector.events import Event, Failed, Migrated, SessionEnded, SessionStarted
from collector.history import Code, History
from collector.inventory import line_blocks
from collector.moves import read_moved
from collector.settings import StrictModel
from orchestrate.rundir import RunDir, read_plan
from orchestrate.scheduler import scrubbed_environment
from orchestrate.submissions import Submission, read_submissions

_SACCT_TIMEOUT_S: Final = 60.0
_ELAPSED: Final = re.compile(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)")


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
class JobRun:
    """One run of a job as sacct books it; a requeued job has several."""

    job_id: str
    queued_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    elapsed_s: float
    state: str


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
    runs, trouble = _accounted(submissions) if plan.config.the_compute.type == "slurm" else ({}, "jobs of this machine")
    report = WasteReport(name=plan.name, accounting_trouble=trouble)
    for benchmark in plan.benchmarks:
        ids = {job_id for s in submissions if s.prepared.benchmark == benchmark.name for job_id in s.jobs.values()}
        mine = [item for job_id in ids for item in runs.get(job_id, [])]
        total = BenchmarkWaste(benchmark=benchmark.name)
        sessions: list[Session] = []
        for artifacts in run.shards(benchmark):
            try:
                total = _with_shard(total, list(_journal(artifacts)), read_moved(artifacts), sessions)
            except (ValueError, OSError, GymEvalError) as error:
                report.troubles.append(f"{artifacts.journal}: {error}")
        report.benchmarks.append(_with_jobs(total, sessions, mine))
    return report


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
    return total.model_copy(
        update={
            "measured": total.measured + history.codes.count(Code.MEASURED),
            "sessions": total.sessions + len(found),
            "interrupted_attempts": total.interrupted_attempts + dispatched - recorded,
            "failed_attempts": total.failed_attempts + len(failures),
            "failed_attempts_s": total.failed_attempts_s + sum(event.elapsed_s or 0.0 for event in failures),
        }
    )


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


def _with_jobs(total: BenchmarkWaste, sessions: list[Session], runs: list[JobRun]) -> BenchmarkWaste:
    if not runs:
        return total.model_copy(update={"job_s": sum((s.last_at - s.started_at).total_seconds() for s in sessions)})
    queued = sum((r.started_at - r.queued_at).total_seconds() for r in runs if r.started_at is not None)
    startup, preempted = 0.0, 0.0
    for session in sessions:
        mine = _run_of(session, runs)
        if mine is None or mine.started_at is None:
            continue
        startup += max(0.0, (session.started_at - mine.started_at).total_seconds())
        if session.was_killed and mine.ended_at is not None:
            preempted += max(0.0, (mine.ended_at - session.last_at).total_seconds())
    update = {"job_s": sum(r.elapsed_s for r in runs), "queued_s": queued, "startup_s": startup, "preempted_s": preempted}
    return total.model_copy(update=update)


def _run_of(session: Session, runs: list[JobRun]) -> JobRun | None:
    """The run of the session's job that was going on when the session began."""
    fitting = [
        run
        for run in runs
        if run.job_id == session.job_id and run.started_at is not None and run.started_at <= session.started_at
    ]
    return max(fitting, key=lambda run: run.started_at or run.queued_at, default=None)


def _accounted(submissions: Iterable[Submission]) -> tuple[dict[str, list[JobRun]], str | None]:
    bases = sorted({job_id.partition("_")[0] for s in submissions for job_id in s.jobs.values()})
    if not bases:
        return {}, None
    command = ["sacct", "--noheader", "--parsable2", "--allocations", "--duplicates", f"--jobs={','.join(bases)}"]
    command += ["--format=JobID,Submit,Start,End,Elapsed,State"]
    # Times in UTC, as the journals have them.
    env = {**scrubbed_environment(), "TZ": "UTC", "SLURM_TIME_FORMAT": "%Y-%m-%dT%H:%M:%S"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SACCT_TIMEOUT_S, env=env, check=False)
    except FileNotFoundError:
        return {}, "sacct is not installed here"
    except subprocess.TimeoutExpired:
        return {}, f"sacct gave no answer within {_SACCT_TIMEOUT_S:.0f} s"
    if done.returncode:
        return {}, " ".join(done.stderr.split()) or f"sacct: exit code {done.returncode}"
    return parse_sacct(done.stdout), None


def parse_sacct(output: str) -> dict[str, list[JobRun]]:
    """The runs of each job in sacct's lines ``JobID|Submit|Start|End|Elapsed|State``; other lines are none. Pure."""
    found: dict[str, list[JobRun]] = {}
    for line in output.splitlines():
        fields = line.split("|")
        queued = _moment(fields[1]) if len(fields) == 6 else None
        if queued is None:
            continue
        job_id, _, start, end, elapsed, state = fields
        run = JobRun(job_id, queued, _moment(start), _moment(end), _seconds(elapsed), state.split(" ")[0])
        found.setdefault(job_id, []).append(run)
    return found


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(f"{text}+00:00")
    except ValueError:
        # "Unknown" and "None" for what has not happened.
        return None


def _seconds(text: str) -> float:
    found = _ELAPSED.fullmatch(text)
    if found is None:
        return 0.0
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _journal(artifacts: RunArtifacts) -> Iterator[Event]:
    for block in line_blocks(artifacts.journal):
        whole, newline, _torn = block.rpartition(b"\n")
        yield from events.parse_many(whole + newline)

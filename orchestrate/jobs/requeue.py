"""Whether a job may go back to the queue: bounded in number, in time and by progress, by what its journal says."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from collector.formats import events
from collector.formats.events import Failed, OmittedEvent, SessionStarted, Success
from collector.formats.inventory import line_blocks
from collector.text.counted import agreeing, counted
from orchestrate.config.submit import Requeue
from orchestrate.config.values import duration_seconds, in_words
from orchestrate.scheduler import scrubbed_environment

#: Seconds that Slurm has to take a job back; less than a job keeps of its time for going back.
_REQUEUE_TIMEOUT_S: Final = 15.0


@dataclass(slots=True)
class JobRun:
    """One incarnation of a job on its shard, as the journal knows it."""

    job_id: str | None
    restart: int
    started_at: datetime
    last_at: datetime
    #: Outcomes that it recorded.
    outcomes: int = 0

    @property
    def seconds(self) -> float:
        """From its first to its last event."""
        return max(0.0, (self.last_at - self.started_at).total_seconds())


def read_job_runs(journal: Path) -> list[JobRun]:
    """Every session of the shard with the job it ran in. A torn last line says nothing."""
    runs: dict[int, JobRun] = {}
    for block in line_blocks(journal):
        whole = block[: block.rfind(b"\n") + 1]
        for event in events.parse_many(whole):
            at = datetime.fromisoformat(event.at)
            if isinstance(event, SessionStarted):
                runs[event.session] = JobRun(event.job_id, event.restart_count or 0, at, at)
            elif event.session in runs:
                run = runs[event.session]
                run.last_at = max(run.last_at, at)
                run.outcomes += isinstance(event, Success | Failed | OmittedEvent)
    return list(runs.values())


def disjoint(runs: Iterable[JobRun]) -> list[JobRun]:
    """The runs of several shards that one job works off: where they were worked on at once the time counts once. Pure."""
    found: list[JobRun] = []
    for run in sorted(runs, key=lambda run: (run.job_id or "", run.restart, run.started_at)):
        last = found[-1] if found else None
        if last is not None and (last.job_id, last.restart) == (run.job_id, run.restart) and run.started_at < last.last_at:
            found[-1] = replace(last, last_at=max(last.last_at, run.last_at), outcomes=last.outcomes + run.outcomes)
        else:
            found.append(run)
    return found


def requeues_used(runs: Sequence[JobRun], job_id: str, restarts: int) -> int:
    """What the ``restarts`` earlier incarnations of a job cost: one each, and two for one that recorded nothing."""
    progress = {run.restart for run in runs if run.job_id == job_id and run.outcomes}
    return sum(1 if restart in progress else 2 for restart in range(restarts))


def why_not_again(requeue: Requeue, runs: Sequence[JobRun], job_id: str, restarts: int) -> str | None:
    """Why incarnation ``restarts`` of the job may not begin; None when it may. The first one always may."""
    if restarts == 0:
        return None
    used = requeues_used(runs, job_id, restarts)
    if used > requeue.max_requeues:
        requeues = counted(restarts, "requeue")
        told = f"{requeues} {agreeing(restarts, 'count')} as {used:,}" if used != restarts else requeues
        return f"{told}, since those that recorded nothing count double; max_requeues is {requeue.max_requeues}"
    if requeue.max_walltime is not None:
        spent = sum(run.seconds for run in runs if run.job_id == job_id)
        if spent >= duration_seconds(requeue.max_walltime):
            limit = in_words(duration_seconds(requeue.max_walltime))
            return f"{in_words(round(spent))} were spent on it in {counted(restarts + 1, 'run')}; max_walltime is {limit}"
    return None


def requeue_job(job_id: str) -> bool:
    """Send the job back to the queue. False when Slurm refused, gave no answer in time, or is not there."""
    command = ["scontrol", "requeue", job_id]
    try:
        done = subprocess.run(command, timeout=_REQUEUE_TIMEOUT_S, env=scrubbed_environment(), check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0

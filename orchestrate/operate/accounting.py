"""What accounting says of the jobs of a run: when each of their runs was queued, started and ended."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from orchestrate.runs.submissions import Submission
from orchestrate.scheduler import ask_program, leader_of

_SACCT_TIMEOUT_S: Final = 60.0
_ELAPSED: Final = re.compile(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)")


@dataclass(frozen=True, slots=True)
class BookedRun:
    """One run of a job as sacct books it; a requeued job has several."""

    job_id: str
    queued_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    elapsed_s: float
    state: str
    #: The part of it that is the benchmark's: less than 1 for a packed job.
    share: float = 1.0


def job_runs(submissions: Iterable[Submission]) -> tuple[dict[str, list[BookedRun]], str | None]:
    """The runs of every job of ``submissions`` by its id, and why accounting could not be asked; None when it answered."""
    bases = sorted({job_id.partition("_")[0] for s in submissions for job_id in s.jobs.values()})
    if not bases:
        return {}, None
    command = ["sacct", "--noheader", "--parsable2", "--allocations", "--duplicates", f"--jobs={','.join(bases)}"]
    command += ["--format=JobID,Submit,Start,End,Elapsed,State"]
    # Times in UTC, as the journals have them.
    env = {"TZ": "UTC", "SLURM_TIME_FORMAT": "%Y-%m-%dT%H:%M:%S"}
    answer = ask_program(command, timeout_s=_SACCT_TIMEOUT_S, env=env)
    return (parse_sacct(answer.text), None) if answer.trouble is None else ({}, answer.trouble)


def parse_sacct(output: str) -> dict[str, list[BookedRun]]:
    """The runs of each job in sacct's lines ``JobID|Submit|Start|End|Elapsed|State``; other lines are none. Pure."""
    found: dict[str, list[BookedRun]] = {}
    for line in output.splitlines():
        fields = line.split("|")
        queued = _moment(fields[1]) if len(fields) == 6 else None
        if queued is None:
            continue
        listed, _, start, end, elapsed, state = fields
        if (job_id := leader_of(listed)) is None:
            continue
        run = BookedRun(job_id, queued, _moment(start), _moment(end), _seconds(elapsed), state.split(" ")[0])
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

"""Which services running jobs wait for, by the logs that they write: a job that waits records nothing and looks idle."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from orchestrate.runs.directory import RunDir
from orchestrate.runs.plan import BenchmarkPlan
from orchestrate.runs.submissions import Submission
from orchestrate.scheduler import Knowledge
from orchestrate.services.waits import ServiceWait, waits_in
from orchestrate.status.report import ShardReport

#: Bytes at a log's end: a job that waits says something twice a minute at most.
_TAIL: Final = 16_384


def with_waits(
    shards: Sequence[ShardReport], run: RunDir, benchmark: BenchmarkPlan, submissions: Sequence[Submission]
) -> list[ShardReport]:
    """``shards``, all of ``benchmark``, with what their newest jobs wait for where these run."""
    if not any(map(_may_wait, shards)):
        return list(shards)
    newest: dict[int, Submission] = {}
    for submission in submissions:
        if submission.prepared.benchmark == benchmark.name:
            newest.update(dict.fromkeys(submission.jobs, submission))
    # A packed job fills several shards and has one log.
    known: dict[str, list[ServiceWait]] = {}
    found: list[ShardReport] = []
    for shard in shards:
        if _may_wait(shard) and shard.job_id is not None and shard.index in newest:
            if shard.job_id not in known:
                known[shard.job_id] = _waits(_logs_of(run, benchmark, newest[shard.index], shard.index))
            waits = known[shard.job_id]
            found.append(shard.model_copy(update={"waits": waits}) if waits else shard)
        else:
            found.append(shard)
    return found


def _may_wait(shard: ShardReport) -> bool:
    return not shard.final and shard.knowledge is Knowledge.KNOWN and shard.job_state == "RUNNING"


def _logs_of(run: RunDir, benchmark: BenchmarkPlan, submission: Submission, index: int) -> Iterator[Path]:
    """Where the log of the shard's job may lie: it has its id on Slurm, and the name of its batch on one machine."""
    # The last job of a packed batch may have a single shard, and its log beside that shard's.
    for folder in [run.logs(benchmark), *([run.logs(None)] if submission.is_packed else [])]:
        yield folder / f"job-{submission.jobs[index]}.log"
        yield folder / f"job-{submission.token}-{submission.position_of(index)}.log"


def _waits(logs: Iterator[Path]) -> list[ServiceWait]:
    for path in logs:
        try:
            with path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _TAIL))
                text = file.read(_TAIL)
        except OSError:
            # Not there, or none of ours to read: the scheduler's word stands alone.
            continue
        return waits_in(text.decode(errors="replace").splitlines(), now=datetime.now(UTC))
    return []

"""What surrounds a job: how the scheduler calls it, where it runs, whether others still do, and being asked to stop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from collector.errors import NotFoundError
from collector.stop import StopRequest
from orchestrate.rundir import RunDir
from orchestrate.scheduler import Scheduler
from orchestrate.submissions import read_submissions

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JobContext:
    """What the scheduler calls this job."""

    job_id: str
    restarts: int
    on_slurm: bool
    holds_gpus: bool = False

    @classmethod
    def read(cls) -> JobContext:
        """From the environment of this process."""
        env = os.environ
        if "SLURM_JOB_ID" not in env:
            return cls(f"local:{os.getpid()}", 0, on_slurm=False)
        array = env.get("SLURM_ARRAY_JOB_ID")
        job_id = f"{array}_{env['SLURM_ARRAY_TASK_ID']}" if array else env["SLURM_JOB_ID"]
        # The second is the older name; Slurm sets neither in a job without GPUs.
        holds_gpus = bool(env.get("SLURM_JOB_GPUS") or env.get("SLURM_GPUS_ON_NODE"))
        return cls(job_id, int(env.get("SLURM_RESTART_COUNT", "0")), on_slurm=True, holds_gpus=holds_gpus)


def job_is_over(run: RunDir, job_id: str, scheduler: Scheduler) -> bool:
    """Whether a job of this run has certainly ended. False for a job that the run's receipts do not know."""
    tokens = [s.token for s in read_submissions(run.submissions) if job_id in s.jobs.values()]
    return bool(tokens) and scheduler.ask({tokens[-1]: [job_id]})[job_id].is_over


def enter_directory(path: str) -> None:
    """Go where the submit command ran. Raises NotFoundError when this machine does not have that directory."""
    try:
        os.chdir(path)
    except OSError as error:
        raise NotFoundError(f"cannot be entered here: {error.strerror}.", "Submit from a shared directory.", path) from error


async def unless_stopped(work: Coroutine[Any, Any, T], stop: StopRequest) -> T | None:
    """The result of ``work``, or None when a stop was asked for before it was there; it is cancelled then."""
    working = asyncio.ensure_future(work)
    asked = asyncio.ensure_future(stop.asked())
    try:
        await asyncio.wait({working, asked}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        asked.cancel()
        if not working.done():
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

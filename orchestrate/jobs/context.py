"""What surrounds a job: how the scheduler calls it, where it runs, and whether others still do."""

from __future__ import annotations

import os
from dataclasses import dataclass

from collector.errors import NotFoundError
from orchestrate.runs.directory import RunDir
from orchestrate.runs.submissions import read_submissions
from orchestrate.scheduler import Scheduler


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

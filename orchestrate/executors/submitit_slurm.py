"""submitit's Slurm executor with our job script, for single jobs and for arrays, and with answers that can be trusted.

submitit 1.5.4 builds arrays with a plain SlurmExecutor, which drops every override of a subclass, so the whole submission is
done here; tests/orchestrate/test_submitit_assumptions.py fails when the hooks it relies on change.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from orchestrate.executors.tasks import stage_tasks  # first: it keeps submitit from configuring logging
from orchestrate.scheduler import scrubbed_environment

from submitit import SlurmExecutor, SlurmJob  # isort: skip
from submitit.core.utils import DelayedSubmission  # isort: skip

#: Seconds until an answer counts as lost. A controller that is busy can take most of a minute.
SBATCH_TIMEOUT_S: Final = 60.0
_JOB_ID: Final = re.compile(r"(\d+)(?:;\S+)?")


class SbatchError(Exception):
    """sbatch gave no job id; whether a job exists has to be looked up by its name."""

    def __init__(self, reason: str, *, may_arrive: bool) -> None:
        super().__init__(reason, may_arrive)
        self.reason = reason
        #: The controller may still act on the request.
        self.may_arrive = may_arrive


class TemplateSlurmExecutor(SlurmExecutor):
    """Submits all tasks given to it at once: one as a job, several as one array."""

    def __init__(self, folder: Path, *, script: Callable[[int], str], walltime_min: int) -> None:
        super().__init__(folder)
        self._script = script
        self._walltime_min = walltime_min

    def _internal_process_submissions(self, delayed_submissions: list[DelayedSubmission]) -> list[Any]:
        count = len(delayed_submissions)
        stage_tasks(self.folder, delayed_submissions, self._script(count), timeout_min=self._walltime_min)
        job_id = run_sbatch(self.folder / "job.sh")
        return [SlurmJob(folder=self.folder, job_id=name, tasks=[0]) for name in array_ids(job_id, count)]


def run_sbatch(script: Path) -> str:
    """The id that sbatch prints for ``script``. Raises SbatchError with its words when it prints none or complains."""
    try:
        done = subprocess.run(
            ["sbatch", "--parsable", str(script)],
            capture_output=True,
            text=True,
            timeout=SBATCH_TIMEOUT_S,
            env=scrubbed_environment(),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SbatchError(f"sbatch gave no answer within {SBATCH_TIMEOUT_S:.0f} s", may_arrive=True) from error
    except OSError as error:
        raise SbatchError(f"sbatch cannot be run: {error.strerror}", may_arrive=False) from error
    job_id = parse_job_id(done.stdout)
    if done.returncode or job_id is None:
        said = " ".join((done.stderr or done.stdout).split())
        reason = f"sbatch: {said or 'no job id'} (exit code {done.returncode})"
        raise SbatchError(reason, may_arrive="timed out" in said)
    return job_id


def parse_job_id(output: str) -> str | None:
    """The id in the last word of ``output``, ``123`` or ``123;cluster``; sites print banners with numbers before it."""
    words = output.split()
    found = _JOB_ID.fullmatch(words[-1]) if words else None
    return found[1] if found else None


def array_ids(job_id: str, count: int) -> Sequence[str]:
    """The ids of the tasks of a submission: the job's own, or ``<job>_<position>`` in an array."""
    return [job_id] if count == 1 else [f"{job_id}_{position}" for position in range(count)]

"""What submitit carries to a job: a reference to our job function and plain strings, nothing else.

One directory per submission holds a pickle per task, named by its position, and exists as a whole before anything is
submitted. submitit would name pickles by job id, which is known only afterwards; a crash in between would lose them.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import cloudpickle

from collector import durable
from orchestrate.entry import run_finisher, run_shard

# submitit configures logging to stdout at import unless it is told not to; results printed there would be polluted.
os.environ.setdefault("SUBMITIT_LOG_LEVEL", "NOCONFIG")

from submitit.core.utils import DelayedSubmission


def stage_tasks(folder: Path, tasks: Sequence[DelayedSubmission], script: str | None, *, timeout_min: int) -> None:
    """Make ``folder`` with the pickle of each task and, when there is one, the script ``job.sh``."""
    with durable.staged_dir(folder) as staging:
        for position, task in enumerate(tasks):
            task.set_timeout(timeout_min, 0)
            durable.write_new(staging / f"{position}.pkl", cloudpickle.dumps(task))
        if script is not None:
            durable.write_new(staging / "job.sh", script.encode())


def shard_calls(run_dir: Path, jobs: Sequence[Sequence[tuple[str, int]]]) -> list[Callable[[], int]]:
    """The call that each job makes, with the benchmark and index of its shards."""
    texts = [[text for name, index in job for text in (name, str(index))] for job in jobs]
    return [functools.partial(run_shard, str(run_dir), *words) for words in texts]


def finisher_call(run_dir: Path, benchmark: str, token: str) -> Callable[[], int]:
    """The call that a finisher makes."""
    return functools.partial(run_finisher, str(run_dir), benchmark, token)

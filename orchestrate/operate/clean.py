"""What a run no longer needs once its jobs have ended: pickles of tasks, slot locks, logs, and what crashes left behind.

Results, journals and receipts stay; only ``everything`` removes a run as a whole. Never touches a run with a live job, a held
lock, or a scheduler that could not be asked.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from collector import durable
from collector.errors import RefusedError
from collector.shard.lock import is_held
from collector.text.counted import counted
from orchestrate.operate.jobs import jobs_of
from orchestrate.runs.directory import RunDir, read_plan
from orchestrate.runs.lock import submit_lock
from orchestrate.runs.plan import SubmitPlan

#: How often a held lock is looked at, and the seconds between two looks: a look takes less than a millisecond.
_LOOKS: Final = 5
_PAUSE_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Removal:
    """What is removed of one run: ``paths`` in order, and the bytes that this frees."""

    run: RunDir
    paths: tuple[Path, ...]
    size_bytes: int
    is_everything: bool = False


def plan_removal(run: RunDir, *, everything: bool = False) -> Removal:
    """What ``clean`` would remove of ``run``. Raises RefusedError while a job lives, or may, or a collector holds a shard."""
    plan = read_plan(run)
    _check_ended(run, plan)
    paths = [run.root] if everything else sorted(_leftovers(run, plan))
    return Removal(run, tuple(paths), sum(map(_size, paths)), everything)


def remove(removal: Removal) -> None:
    """Remove what was planned, under the submit lock; a run as a whole disappears in one step."""
    run = removal.run
    with submit_lock(run):
        _check_ended(run, read_plan(run))
        for path in removal.paths:
            if path.is_dir() and not path.is_symlink():
                durable.remove_tree(path)
            else:
                durable.remove(path)


def last_activity(run: RunDir) -> float:
    """When anything was last written to the run's receipts, journals or logs, in Unix seconds."""
    plan = read_plan(run)
    paths = [run.plan, run.submissions]
    for benchmark in plan.benchmarks:
        paths += [shard.journal for shard in run.shards(benchmark)]
        paths += [run.result(benchmark).receipt, run.logs(benchmark)]
    return max(path.stat().st_mtime for path in paths if path.exists())


def _check_ended(run: RunDir, plan: SubmitPlan) -> None:
    jobs = jobs_of(run, plan)
    if jobs.trouble is not None:
        what = f"the scheduler could not be asked whether its jobs have ended ({jobs.trouble})."
        raise RefusedError(what, "Clean when it can be.", run.root)
    if jobs.live:
        shown = ", ".join(job.shown for job in jobs.live[:3])
        raise RefusedError(
            f"{counted(len(jobs.live), 'job')} still live: {shown}.", "Wait for them, or gym eval cancel.", run.root
        )
    if jobs.open_tokens:
        raise RefusedError("a submission was never answered.", "Submit or cancel again, then clean.", run.root)
    for benchmark in plan.benchmarks:
        for index, shard in enumerate(run.shards(benchmark)):
            if _is_held_for_long(shard.lock):
                raise RefusedError(f"a collector holds {benchmark.name} shard {index}.", "Wait for it.", shard.lock)


def _is_held_for_long(lock: Path) -> bool:
    """Whether somebody works under the lock: another command that only looks, as this one does, holds it for a moment."""
    for _ in range(_LOOKS):
        if not is_held(lock):
            return False
        time.sleep(_PAUSE_S)
    return True


def _leftovers(run: RunDir, plan: SubmitPlan) -> Iterator[Path]:
    yield from (path for ending in ("lock", "begun") for path in run.slot(0).parent.glob(f"*.{ending}"))
    yield from (path for path in run.root.rglob(".*.tmp") if durable.is_temporary(path))
    for benchmark in (*plan.benchmarks, None):
        # The script stays: it says what was run.
        yield from run.jobs(benchmark).glob("*/*.pkl")
        yield from run.logs(benchmark).glob("*.log")


def _size(path: Path) -> int:
    if path.is_symlink():
        return 0
    if path.is_dir():
        return sum(entry.stat().st_size for entry in path.rglob("*") if entry.is_file() and not entry.is_symlink())
    return path.stat().st_size

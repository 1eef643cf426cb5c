"""The runs that were submitted from here, newest last, each with what its own files say at a glance. Asks no scheduler."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from pathlib import Path

from collector.errors import GymEvalError
from collector.settings import StrictModel
from merge.publication.receipt import read_receipt
from orchestrate.remote.runs import remote_runs
from orchestrate.runs.directory import RunDir, read_plan
from orchestrate.runs.index import entries
from orchestrate.runs.submissions import is_refused, read_submissions


class ListedRun(StrictModel):
    """One run. Counts are null for a run on another machine, and for one whose plan cannot be read."""

    name: str
    submitted_at: str
    #: A path, or host:path.
    place: str
    benchmarks: int | None = None
    merged: int | None = None
    rollouts: int | None = None
    #: The scheduler took none of its jobs.
    refused: bool = False
    #: Why nothing more can be said.
    trouble: str | None = None


def list_runs(*, since: datetime | None = None) -> list[ListedRun]:
    """Runs here and on login nodes, submitted since then; those whose directory is gone are left out."""
    found = [_local(entry.name, entry.at, Path(entry.run_dir)) for entry in entries() if Path(entry.run_dir).is_dir()]
    found += [ListedRun(name=run.name, submitted_at=run.at, place=f"{run.hostname}:{run.run_dir}") for run in remote_runs()]
    chosen = [run for run in found if since is None or _moment(run.submitted_at) >= since]
    return sorted(chosen, key=lambda run: run.submitted_at)


def _local(name: str, at: str, path: Path) -> ListedRun:
    base = ListedRun(name=name, submitted_at=at, place=str(path))
    run = RunDir(path)
    try:
        plan = read_plan(run)
    except GymEvalError as error:
        return base.model_copy(update={"trouble": str(error)})
    merged = 0
    for benchmark in plan.benchmarks:
        with suppress(GymEvalError):
            receipt = read_receipt(run.result(benchmark).receipt)
            merged += receipt is not None and not receipt.partial
    refused = False
    with suppress(GymEvalError, OSError):
        refused = is_refused(read_submissions(run.submissions))
    update = {
        "refused": refused,
        "benchmarks": len(plan.benchmarks),
        "merged": merged,
        "rollouts": sum(b.expected for b in plan.benchmarks),
    }
    return base.model_copy(update=update)


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)

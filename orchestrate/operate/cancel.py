"""Stop the jobs of a run, look again, and say what is left; with ``finish``, merge what is there.

Under the submit lock, so that no other command submits meanwhile. Nothing is done when the scheduler cannot be asked.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from collector.errors import GymEvalError, NotFoundError, RefusedError, UnavailableError
from collector.text.counted import counted
from merge.tail import MergeState
from orchestrate.config.load import settings_of
from orchestrate.jobs.tail import finish_partly, lines_of
from orchestrate.operate.jobs import RunJob, RunJobs, jobs_of, shard_words
from orchestrate.operate.stopping import Stopper, stopper_for
from orchestrate.runs.directory import RunDir, read_plan
from orchestrate.runs.lock import submit_lock
from orchestrate.runs.plan import BenchmarkPlan, SubmitPlan

#: Seconds that a cancelled job may take to end: Slurm's KillWait is 30 by default, and a node's epilog comes after it.
ENDING_S: Final = 90.0
#: Seconds after which a process that was asked to end is killed: a collector needs a few for requests in flight.
_PATIENCE_S: Final = 15.0
_PAUSE_S: Final = 0.5


@dataclass(slots=True)
class Cancelled:
    """What a cancel command did."""

    #: Jobs that were live when it began.
    stopped: list[RunJob] = field(default_factory=list[RunJob])
    #: Jobs that still are.
    left: list[RunJob] = field(default_factory=list[RunJob])
    #: Names of batches that may still arrive at the scheduler.
    open_tokens: tuple[str, ...] = ()
    #: Benchmark to what became of its merge.
    merges: dict[str, str] = field(default_factory=dict[str, str])


def cancel(
    run: RunDir,
    *,
    benchmark: str | None = None,
    shard: int | None = None,
    finish: bool = False,
    say: Callable[[str], None] = lambda _text: None,
) -> Cancelled:
    """Stop every live job, or those of one benchmark or shard, and return when they have ended.

    Raises UnavailableError when the scheduler cannot be asked or told, RefusedError while a submit command works on the run,
    NotFoundError for a benchmark or shard that the run does not have.
    """
    plan = read_plan(run)
    check_selection(plan, benchmark, shard)
    with submit_lock(run):
        done = _Work(run, plan, benchmark, shard, say).stop(drain=finish)
        if finish and not done.left:
            chosen = [item for item in plan.benchmarks if benchmark in (None, item.name)]
            done.merges = {item.name: _merge(run, plan, item, say) for item in chosen}
        return done


def check_selection(plan: SubmitPlan, benchmark: str | None, shard: int | None) -> None:
    """Raise NotFoundError unless the run has the benchmark, and the benchmark the shard."""
    if benchmark is not None and benchmark not in plan.names:
        raise NotFoundError(f"there is no benchmark {benchmark!r}.", f"There are: {', '.join(plan.names)}.", plan.name)
    if shard is None:
        return
    chosen = [item for item in plan.benchmarks if benchmark in (None, item.name)]
    if len(chosen) > 1:
        raise NotFoundError("a shard of which benchmark?", f"Add --benchmark: {', '.join(plan.names)}.", plan.name)
    if not 0 <= shard < chosen[0].shards:
        raise NotFoundError(f"there is no shard {shard}.", f"They are 0 to {chosen[0].shards - 1}.", chosen[0].name)


class _Work:
    """One cancel command at work, under the submit lock."""

    def __init__(
        self, run: RunDir, plan: SubmitPlan, benchmark: str | None, shard: int | None, say: Callable[[str], None]
    ) -> None:
        self._run = run
        self._plan = plan
        self._benchmark = benchmark
        self._shard = shard
        self._say = say
        self._stopper: Stopper = stopper_for(plan)

    def stop(self, *, drain: bool) -> Cancelled:
        found = self._look()
        if not self._is_whole:
            self._check_alone(found)
        done = Cancelled(stopped=found.live, open_tokens=found.open_tokens if self._is_whole else ())
        if done.open_tokens:
            self._stopper.forget(done.open_tokens)
        if found.live:
            # A packed job stands there once for each of its shards.
            jobs = counted(len({job.job_id for job in found.live}), "job")
            self._say(f"{'draining' if drain else 'cancelling'} {jobs}")
            # A finisher starts when its shards end: it goes first.
            self._stopper.cancel([job for job in found.live if job.is_finisher])
            (self._stopper.drain if drain else self._stopper.cancel)([job for job in found.live if not job.is_finisher])
            done.left = self._until_over()
        return done

    def _check_alone(self, chosen: RunJobs) -> None:
        """Raise RefusedError when a chosen job fills other shards too: they would be stopped with it."""
        ids = {job.job_id for job in chosen.live}
        chosen_shards = {(job.benchmark, job.index) for job in chosen.live}
        others = [
            job
            for job in jobs_of(self._run, self._plan).live
            if job.job_id in ids and (job.benchmark, job.index) not in chosen_shards
        ]
        if others:
            shown = ", ".join(shard_words(job.benchmark, job.index) for job in others[:5])
            more = f" and {len(others) - 5} more" if len(others) > 5 else ""
            what = f"job {others[0].job_id} also fills {shown}{more}."
            raise RefusedError(
                what, "Cancel the whole run: what is recorded stays, and the same submit goes on.", self._run.root
            )

    @property
    def _is_whole(self) -> bool:
        return self._benchmark is None and self._shard is None

    def _look(self) -> RunJobs:
        found = jobs_of(self._run, self._plan).of(self._benchmark, self._shard)
        if found.trouble is not None:
            what = f"the scheduler could not be asked ({found.trouble})"
            raise UnavailableError(f"{what}: nothing more was done.", "Run the same command again.", self._run.root)
        return found

    def _until_over(self) -> list[RunJob]:
        """Look until no job is live, and once more; a job that came back to the queue is cancelled there."""
        started = time.monotonic()
        was_over = False
        while True:
            live = self._look().live
            if not live and was_over:
                return []
            if time.monotonic() - started > ENDING_S:
                return live
            waiting = [job for job in live if job.fact.state in {"PENDING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED"}]
            if waiting:
                self._stopper.cancel(waiting)
            if live and time.monotonic() - started > _PATIENCE_S:
                self._stopper.kill(live)
            was_over = not live
            time.sleep(self._stopper.second_look_s if was_over else _PAUSE_S)


def _merge(run: RunDir, plan: SubmitPlan, benchmark: BenchmarkPlan, say: Callable[[str], None]) -> str:
    """Publish and export what is there as the last job of the benchmark would, labelled partial when it is."""
    settings = settings_of(plan.config, benchmark.name, output=run.merged(benchmark).rollouts)
    if not Path(plan.cwd).is_dir():
        return f"not merged: {plan.cwd}, where the run was submitted, is not here"
    try:
        # Relative paths of exports start there.
        with contextlib.chdir(plan.cwd):
            result = finish_partly(run, benchmark, settings)
    except GymEvalError as error:
        return f"not merged: {error}"
    for line in lines_of(result, run, benchmark):
        say(f"{benchmark.name}: {line}")
    coverage = result.coverage
    state = "merged" if result.state is MergeState.MERGED else "was merged already"
    failed = [name for name, export in result.exports.items() if not export.is_success]
    trouble = f"; not exported: {', '.join(failed)}" if failed else ""
    what = counted(coverage.completed, "rollout", of=coverage.expected)
    return f"{state}: {what}{'' if coverage.is_final else ' (partial)'}{trouble}"

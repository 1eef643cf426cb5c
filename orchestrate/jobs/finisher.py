"""The job that follows all jobs of a benchmark, however they ended: it publishes what there is, and says when that is not all.

Exactly one projection stands whoever else finishes the benchmark: the merge lock and its receipt see to that.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NoReturn

import filelock

from collector import durable
from collector.errors import GymEvalError, IncompleteError
from orchestrate.config.load import settings_of
from orchestrate.config.values import resolve_env
from orchestrate.jobs.context import JobContext, enter_directory
from orchestrate.jobs.processes import ProcessTable, local_job_id
from orchestrate.jobs.requeue import requeue_job
from orchestrate.jobs.storage import storage_error
from orchestrate.outcome import check_outcome
from orchestrate.runs.directory import RunDir, read_plan
from orchestrate.runs.plan import BenchmarkPlan, SubmitPlan
from orchestrate.runs.submissions import latest_finisher, live_jobs, read_submissions
from orchestrate.scheduler import Scheduler, SlurmScheduler

#: Seconds between two looks at jobs that still live; they were requeued, or submitted after this one.
_PAUSE_S: Final = 10.0


def run_finisher(run_dir: str, benchmark: str, token: str) -> int:
    """Finish the benchmark. Returns 0, or ends the process with the exit code of what is wrong: 6 for a partial result."""
    try:
        Finisher(RunDir(Path(run_dir)), benchmark, token).run()
    except GymEvalError as error:
        _end_with(error)
    except OSError as error:
        if (told := storage_error(error, f"{benchmark} finisher")) is None:
            raise
        _end_with(told)
    return 0


def _end_with(error: GymEvalError) -> NoReturn:
    sys.stderr.write(f"gym eval: {error}\n")
    # Not an exception of submitit's: it would pickle the traceback and end with 1 whatever happened.
    raise SystemExit(error.exit_code) from error


class Finisher:
    """One incarnation of a finisher."""

    def __init__(self, run: RunDir, benchmark: str, token: str, *, scheduler: Scheduler | None = None) -> None:
        self.run_dir = run
        self.plan = read_plan(run)
        self.benchmark = self.plan.benchmark(benchmark)
        self.token = token
        self.context = JobContext.read()
        self._scheduler = scheduler or SlurmScheduler()
        self._asked = threading.Event()
        self._is_time_over = False

    def run(self) -> None:
        """Raises IncompleteError for a partial result, NothingMeasuredError without a score, and what merging raises."""
        enter_directory(self.plan.cwd)
        os.environ.update(resolve_env(self.plan.config.driver.env, os.environ, where="driver.env"))
        signal.signal(signal.SIGUSR2, self._on_signal)
        signal.signal(signal.SIGTERM, self._on_signal)
        while True:
            submissions = read_submissions(self.run_dir.submissions)
            newest = latest_finisher(submissions, self.benchmark.name)
            if newest is not None and newest.token != self.token:
                self._say("a later submission has a finisher of its own")
                return
            if not live_jobs(submissions, self.benchmark.name, self._scheduler):
                break
            self._say("jobs of the benchmark still live")
            if self._asked.wait(_PAUSE_S):
                self._give_up()
        self._finish()

    def _finish(self) -> None:
        from orchestrate.jobs.tail import check_exports, finish_partly, lines_of  # noqa: PLC0415 - loads merge and exporters

        settings = settings_of(self.plan.config, self.benchmark.name, output=self.run_dir.merged(self.benchmark).rollouts)
        benchmark = read_plan(self.run_dir).benchmark(self.benchmark.name)
        result = finish_partly(self.run_dir, benchmark, settings)
        for line in lines_of(result, self.run_dir, benchmark):
            self._say(line)
        # The evaluation's own outcome is told rather than that of its exports, which the log tells too.
        check_outcome(result.coverage, self.benchmark.name)
        check_exports(result, self.benchmark.name)

    def _on_signal(self, number: int, _frame: object) -> None:
        self._is_time_over = number == signal.SIGUSR2
        self._asked.set()

    def _give_up(self) -> None:
        """The time is over before the jobs are: go back to the queue; end when told to."""
        fix = ""
        if self._is_time_over and self.context.on_slurm:
            is_requeued = requeue_job(self.context.job_id)
            fix = "The finisher was requeued." if is_requeued else "Slurm did not requeue it: run the submit command again."
        raise IncompleteError("was told to stop before the benchmark's jobs had ended.", fix, self.benchmark.name)

    def _say(self, text: str) -> None:
        sys.stdout.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {self.benchmark.name} finisher: {text}\n")
        sys.stdout.flush()


def finish_locally(run: RunDir, plan: SubmitPlan, benchmark: BenchmarkPlan, *, say: Callable[[str], None]) -> None:
    """Publish what there is when this process is the last one of the benchmark; its own exit code tells that it is not all.

    Each process that ends this way leaves its name first, under a lock: of two that end at once one finds the other gone.
    """
    mark = run.benchmark(benchmark) / "ended-processes"
    with filelock.FileLock(mark.with_suffix(".lock"), fallback_to_soft=False):
        ended = mark.read_text().splitlines() if mark.exists() else []
        ended.append(local_job_id(os.getpid()))
        durable.publish(mark, "".join(f"{job_id}\n" for job_id in ended).encode())
        live = live_jobs(read_submissions(run.submissions), benchmark.name, ProcessTable(run))
        if not live <= set(ended):
            return
    from orchestrate.jobs.tail import finish_partly, lines_of  # noqa: PLC0415 - loads merge and exporters

    settings = settings_of(plan.config, benchmark.name, output=run.merged(benchmark).rollouts)
    for line in lines_of(finish_partly(run, benchmark, settings), run, benchmark):
        say(line)

"""The submit command without its printing: plan, create, settle what is unclear, submit what is missing, record it.

Order: the run directory, the receipt of a batch, the batch itself, its answer, the record ``gym-job.json``. Repeated on a run
it submits only those shards that need a job.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import filelock

from collector import durable
from collector.errors import RefusedError, UnavailableError
from collector.inventory import materialize
from collector.prepare import experiment_of, validate_rows
from orchestrate.config.load import Loaded
from orchestrate.executors.base import Accepted, Answer, Executor, JobBatch, Refused, Unclear, executor_for
from orchestrate.needs import needs_of
from orchestrate.plan import BenchmarkPlan, Source, SubmitPlan, batches, plan_submission
from orchestrate.record import make_record, publish
from orchestrate.rundir import RunDir, check_same_run, create_run, read_plan, refresh_plan
from orchestrate.scheduler import Knowledge
from orchestrate.submissions import (
    Failed,
    Outcome,
    Prepared,
    ShardNeed,
    Submitted,
    append,
    read_submissions,
)
from orchestrate.version import package_version

#: Seconds after its preparation at which an unacknowledged batch that the scheduler does not list counts as never accepted.
DEADLINE_S: Final = 120.0
#: Seconds between two looks for a name whose submission was not acknowledged, and how many looks there are.
_LOOKS: Final = (0.0, 0.5, 1.0, 2.0, 4.0)


@dataclass(slots=True)
class Submittal:
    """What a submit command did."""

    run: RunDir
    plan: SubmitPlan
    needs: dict[str, dict[int, ShardNeed]] = field(default_factory=dict[str, dict[int, ShardNeed]])
    #: Benchmark to the job ids of this command.
    jobs: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    #: Benchmark to why some of its shards have no job.
    troubles: dict[str, str] = field(default_factory=dict[str, str])


def gather(loaded: Loaded) -> dict[str, Source]:
    """Read and check every dataset. Raises DatasetError, NoTasksError or ConfigError; writes nothing."""
    found: dict[str, Source] = {}
    for name, settings in loaded.runs.items():
        inventory = materialize(settings)
        validate_rows(settings, inventory.lines)
        found[name] = Source(inventory, experiment_of(settings))
    return found


def make_plan(loaded: Loaded, sources: Mapping[str, Source], config_file: Path, *, new: bool) -> SubmitPlan:
    """The plan that the configuration asks for; with ``new`` it is a run of its own whatever exists."""
    return plan_submission(
        loaded,
        sources,
        config_file=config_file.absolute(),
        cwd=Path.cwd(),
        version=package_version(),
        now=now(),
        suffix=secrets.token_hex(3) if new else "",
    )


def submit(plan: SubmitPlan, loaded: Loaded, sources: Mapping[str, Source]) -> Submittal:
    """Make the run exist and give a job to each shard that needs one. Raises UnavailableError before creating anything."""
    executor_for(RunDir(plan.config.job.output_path.absolute() / plan.name), plan).check()
    run = create_run(plan, sources, loaded.runs)
    return submit_missing(run, plan)


def submit_missing(run: RunDir, plan: SubmitPlan) -> Submittal:
    """Give a job to each shard of an existing run that needs one. Raises RefusedError while another command submits to it."""
    lock = filelock.FileLock(run.submit_lock, timeout=0, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except filelock.Timeout as error:
        raise RefusedError("another command is submitting to this run.", "Wait for it.", run.submit_lock) from error
    try:
        # A creation that crashed left its hidden directory; one that is still at work finds the run made, and is content.
        durable.sweep(run.root)
        plan = refresh_plan(run, plan)
        work = _Work(run, plan, executor_for(run, plan))
        return work.do()
    finally:
        lock.release()


def planned_batches(plan: SubmitPlan) -> tuple[Path, list[tuple[JobBatch, str]]]:
    """The run directory, and each batch with its script, that ``submit`` would make now. Asks the scheduler, writes nothing."""
    run = RunDir(plan.config.job.output_path.absolute() / plan.name)
    if run.plan.exists():
        check_same_run(read_plan(run), plan, run)
    executor = executor_for(run, plan)
    everything = {b.name: dict.fromkeys(range(b.shards), ShardNeed.JOB) for b in plan.benchmarks}
    needs = needs_of(run, plan, executor, read_submissions(run.submissions)) if run.plan.exists() else everything
    found: list[tuple[JobBatch, str]] = []
    for benchmark in plan.benchmarks:
        missing = [index for index, need in needs[benchmark.name].items() if need is ShardNeed.JOB]
        for indexes in batches(missing, executor.batch_limit()):
            batch = JobBatch(token_of(plan, benchmark), benchmark, indexes)
            found.append((batch, executor.preview(batch)))
    return run.root, found


class _Work:
    """One submit command at work, under the submit lock."""

    def __init__(self, run: RunDir, plan: SubmitPlan, executor: Executor) -> None:
        self.run = run
        self.plan = plan
        self.executor = executor
        self.result = Submittal(run, plan)

    def do(self) -> Submittal:
        unclear = self._settle_old()
        self.result.needs = needs_of(self.run, self.plan, self.executor, read_submissions(self.run.submissions))
        limit: int | None = None
        for benchmark in self.plan.benchmarks:
            needs = self.result.needs[benchmark.name]
            missing = [index for index, need in needs.items() if need is ShardNeed.JOB]
            if uncertain := sum(need is ShardNeed.UNCERTAIN for need in needs.values()):
                why = f" ({unclear[benchmark.name]})" if benchmark.name in unclear else ""
                told = f"the scheduler cannot say whether {uncertain} of its shards have a job{why}"
                self.result.troubles[benchmark.name] = told
            if missing:
                limit = limit or self.executor.batch_limit()
            for indexes in batches(missing, limit or 1):
                self._submit(JobBatch(token_of(self.plan, benchmark), benchmark, indexes))
        if self.result.jobs or self.result.troubles or not self.run.record.exists():
            submissions = read_submissions(self.run.submissions)
            publish(self.run, make_record(self.run, self.plan, self.result.troubles, submissions))
        return self.result

    def _settle_old(self) -> dict[str, str]:
        """Look up what an earlier command left open, and return why that is still unclear, by benchmark."""
        for submission in read_submissions(self.run.submissions):
            if submission.outcome is Outcome.OPEN:
                self._settle(submission.prepared, why="its submission was cut short", may_arrive=True)
        names = {s.prepared.benchmark for s in read_submissions(self.run.submissions) if s.outcome is Outcome.OPEN}
        unclear = {name: why for name, why in self.result.troubles.items() if name in names}
        # A batch that never arrived is submitted now; one that did is no work of this command.
        self.result.troubles.clear()
        self.result.jobs.clear()
        return unclear

    def _submit(self, batch: JobBatch) -> None:
        prepared = Prepared(
            at=now(),
            token=batch.token,
            benchmark=batch.benchmark.name,
            indexes=batch.indexes,
            deadline=time.time() + DEADLINE_S,
        )
        append(self.run.submissions, prepared)
        match self.executor.submit(batch):
            case Accepted(jobs):
                self._accept(prepared, jobs, found=False)
            case Refused(reason):
                self._fail(prepared, reason)
            case Unclear(reason, may_arrive):
                self._settle(prepared, why=reason, may_arrive=may_arrive)

    def _settle(self, prepared: Prepared, *, why: str, may_arrive: bool) -> None:
        """Find out by its name whether an unacknowledged batch exists; leave it open when that cannot be known yet."""
        benchmark = self.plan.benchmark(prepared.benchmark)
        batch = JobBatch(prepared.token, benchmark, prepared.indexes)
        may_arrive = may_arrive and time.time() < prepared.deadline
        answer = look_up(self.executor, batch, why=why, may_arrive=may_arrive)
        match answer:
            case Accepted(jobs):
                self._accept(prepared, jobs, found=True)
            case Refused(reason):
                self._fail(prepared, reason)
            case Unclear(reason):
                self.result.troubles[prepared.benchmark] = reason

    def _accept(self, prepared: Prepared, jobs: Mapping[int, str], *, found: bool) -> None:
        append(self.run.submissions, Submitted(at=now(), token=prepared.token, jobs=dict(jobs), found=found))
        self.result.jobs.setdefault(prepared.benchmark, []).extend(jobs.values())

    def _fail(self, prepared: Prepared, reason: str) -> None:
        append(self.run.submissions, Failed(at=now(), token=prepared.token, reason=reason))
        self.result.troubles[prepared.benchmark] = reason


def look_up(
    executor: Executor, batch: JobBatch, *, why: str, may_arrive: bool, sleep: Callable[[float], None] = time.sleep
) -> Answer:
    """What became of a batch whose answer is missing. With ``may_arrive``, a name that is not listed proves nothing yet."""
    for pause in _LOOKS:
        sleep(pause)
        found = executor.scheduler.find(batch.token)
        if found.knowledge is Knowledge.KNOWN:
            return Accepted(executor.job_ids(batch, found.job_id))
        if found.knowledge is Knowledge.COULD_NOT_ASK:
            return Unclear(f"{why}, and {found.detail}")
    if may_arrive:
        return Unclear(f"{why}, and it may still be accepted within {DEADLINE_S:.0f} s")
    return Refused(why)


def token_of(plan: SubmitPlan, benchmark: BenchmarkPlan) -> str:
    """A name that no other submission has, short enough for squeue's columns to show what matters."""
    return f"gym-{benchmark.slug[:40]}-{plan.identity_digest[:6]}-{secrets.token_hex(4)}"


def check_complete(result: Submittal) -> None:
    """Raise UnavailableError that names each benchmark with a shard that should have a job and has none."""
    if result.troubles:
        told = "; ".join(f"{name}: {reason}" for name, reason in result.troubles.items())
        raise UnavailableError(
            f"not everything was submitted: {told}.", "Run the same command again: it submits what is missing.", result.run.root
        )


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")

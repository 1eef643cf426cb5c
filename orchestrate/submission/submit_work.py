"""A submit command at work on an existing run: settle what is unclear, submit what is missing, record it.

Order: the receipt of a batch, the batch itself, its answer, the record ``gym-job.json``. Every shard has its job before the
first finisher is submitted, so that a limit on the number of jobs costs the safety net and not the work.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from collector.text.counted import agreeing
from orchestrate.executors.base import Accepted, Answer, Executor, JobBatch, Refused, Unclear
from orchestrate.runs.directory import RunDir
from orchestrate.runs.plan import BenchmarkPlan, SubmitPlan
from orchestrate.runs.record import make_record, publish
from orchestrate.runs.submissions import FINISHER, Failed, Outcome, Prepared, ShardNeed, append, read_submissions
from orchestrate.scheduler import Knowledge
from orchestrate.submission.batches import finisher_batch, jobs_in, missing_units, receipts_for, shard_batches, submitted_of
from orchestrate.submission.needs import Needs, ask_needs, finisher_after

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
    #: Benchmark to the job that follows all others of it, where this command submitted one.
    finishers: dict[str, str] = field(default_factory=dict[str, str])
    #: Benchmark to why some of its shards have no job.
    troubles: dict[str, str] = field(default_factory=dict[str, str])


class Work:
    """One submit command at work. The caller holds the submit lock."""

    def __init__(self, run: RunDir, plan: SubmitPlan, executor: Executor) -> None:
        self.run = run
        self.plan = plan
        self.executor = executor
        self.result = Submittal(run, plan)
        self._unclear: list[tuple[Sequence[Prepared], Unclear]] = []

    def do(self) -> Submittal:
        """Settle what is unclear, submit what is missing, shards before finishers, and record it."""
        unclear = self.settle_old()
        needs = ask_needs(self.run, self.plan, self.executor, read_submissions(self.run.submissions))
        self.result.needs = needs.shards
        for benchmark in self.plan.benchmarks:
            self._tell_uncertain(benchmark, needs.shards[benchmark.name], unclear.get(benchmark.name))
        if missing := missing_units(self.plan, needs):
            for batch in shard_batches(self.plan, missing, self.executor.batch_limit()):
                self._submit(batch)
        self._settle_new()
        if self.executor.has_finishers:
            for benchmark in self.plan.benchmarks:
                self._submit_finisher(benchmark, needs)
            self._settle_new()
        if self.result.jobs or self.result.finishers or self.result.troubles or not self.run.record.exists():
            submissions = read_submissions(self.run.submissions)
            publish(self.run, make_record(self.run, self.plan, self.result.troubles, submissions))
        return self.result

    def _tell_uncertain(self, benchmark: BenchmarkPlan, needs: Mapping[int, ShardNeed], unclear: str | None) -> None:
        if uncertain := sum(need is ShardNeed.UNCERTAIN for need in needs.values()):
            why = f" ({unclear})" if unclear else ""
            told = f"the scheduler cannot say whether {uncertain:,} of its shards {agreeing(uncertain, 'have')} a job{why}"
            self.result.troubles[benchmark.name] = told

    def _submit_finisher(self, benchmark: BenchmarkPlan, needs: Needs) -> None:
        submitted = self.result.jobs.get(benchmark.name, [])
        submissions = read_submissions(self.run.submissions)
        after = finisher_after(benchmark.name, needs, submissions, submitted=submitted, is_new=bool(submitted))
        if after:
            self._submit(finisher_batch(self.plan, benchmark, after))

    def settle_old(self) -> dict[str, str]:
        """Look up what an earlier command left open, and return why that is still unclear, by benchmark."""
        left: dict[str, list[Prepared]] = {}
        for submission in read_submissions(self.run.submissions):
            if submission.outcome is Outcome.OPEN:
                left.setdefault(submission.token, []).append(submission.prepared)
        self._unclear = [(batch, Unclear("its submission was cut short", may_arrive=True)) for batch in left.values()]
        self._settle_new()
        names = {s.prepared.benchmark for s in read_submissions(self.run.submissions) if s.outcome is Outcome.OPEN}
        unclear = {name: why for name, why in self.result.troubles.items() if name in names}
        # A batch that never arrived is submitted now; one that did is no work of this command.
        self.result.troubles.clear()
        self.result.jobs.clear()
        self.result.finishers.clear()
        return unclear

    def _submit(self, batch: JobBatch) -> None:
        prepared = receipts_for(batch, at=now(), deadline=time.time() + DEADLINE_S)
        append(self.run.submissions, *prepared)
        match self.executor.submit(batch):
            case Accepted(jobs):
                self._accept(prepared, jobs, found=False)
            case Refused(reason):
                self._fail(prepared, reason)
            case Unclear() as answer:
                self._unclear.append((prepared, answer))

    def _settle_new(self) -> None:
        """Settle what got no clear answer, all together: the pauses between looks are made for the first of them only."""
        for position, (prepared, answer) in enumerate(self._unclear):
            pauses_s = _LOOKS if position == 0 else _LOOKS[:1]
            self._settle(prepared, why=answer.reason, may_arrive=answer.may_arrive, pauses_s=pauses_s)
        self._unclear.clear()

    def _settle(self, prepared: Sequence[Prepared], *, why: str, may_arrive: bool, pauses_s: Sequence[float]) -> None:
        """Find out by its name whether an unacknowledged batch exists; leave it open when that cannot be known yet."""
        may_arrive = may_arrive and time.time() < prepared[0].deadline
        answer = look_up(self.executor, prepared[0].token, jobs_in(prepared), why=why, may_arrive=may_arrive, pauses_s=pauses_s)
        match answer:
            case Accepted(jobs):
                self._accept(prepared, jobs, found=True)
            case Refused(reason):
                self._fail(prepared, reason)
            case Unclear(reason):
                self.result.troubles.update((receipt.benchmark, reason) for receipt in prepared)

    def _accept(self, prepared: Sequence[Prepared], job_ids: Sequence[str], *, found: bool) -> None:
        answers = [submitted_of(receipt, job_ids, at=now(), found=found) for receipt in prepared]
        append(self.run.submissions, *answers)
        for receipt, answer in zip(prepared, answers, strict=True):
            if receipt.indexes == (FINISHER,):
                self.result.finishers[receipt.benchmark] = answer.jobs[FINISHER]
            else:
                self.result.jobs.setdefault(receipt.benchmark, []).extend(answer.jobs.values())

    def _fail(self, prepared: Sequence[Prepared], reason: str) -> None:
        append(self.run.submissions, Failed(at=now(), token=prepared[0].token, reason=reason))
        self.result.troubles.update((receipt.benchmark, reason) for receipt in prepared)


def look_up(
    executor: Executor,
    token: str,
    count: int,
    *,
    why: str,
    may_arrive: bool,
    pauses_s: Sequence[float] = _LOOKS,
) -> Answer:
    """What became of a batch of ``count`` jobs whose answer is missing.

    With ``may_arrive``, a name that is not listed proves nothing yet.
    """
    for pause in pauses_s:
        time.sleep(pause)
        found = executor.scheduler.find(token)
        if found.knowledge is Knowledge.KNOWN:
            return Accepted(executor.job_ids(count, found.job_id))
        if found.knowledge is Knowledge.COULD_NOT_ASK:
            return Unclear(f"{why}, and {found.detail}")
    if may_arrive:
        return Unclear(f"{why}, and it may still be accepted within {DEADLINE_S:.0f} s")
    return Refused(why)


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")

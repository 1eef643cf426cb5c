"""The jobs of a run as its receipts and the scheduler know them, after one question for all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from orchestrate.executors.base import executor_for
from orchestrate.runs.directory import RunDir
from orchestrate.runs.plan import SubmitPlan
from orchestrate.runs.submissions import FINISHER, Outcome, Submission, questions, read_submissions
from orchestrate.scheduler import JobFact, Knowledge, Scheduler


@dataclass(frozen=True, slots=True)
class RunJob:
    """One job that was accepted: the ``position``-th of the batch ``token``, for a shard of a benchmark."""

    benchmark: str
    index: int
    job_id: str
    token: str
    position: int
    fact: JobFact

    @property
    def shown(self) -> str:
        """``math shard 3 (job 812_3)``."""
        return f"{shard_words(self.benchmark, self.index)} (job {self.job_id})"

    @property
    def is_finisher(self) -> bool:
        """Whether it fills no shard, but follows those that do."""
        return self.index == FINISHER


@dataclass(frozen=True, slots=True)
class RunJobs:
    """Every job of a run, oldest first, and the names of batches whose answer was lost."""

    jobs: tuple[RunJob, ...]
    open_tokens: tuple[str, ...] = ()

    @property
    def live(self) -> list[RunJob]:
        """Those that wait or run for certain."""
        return [job for job in self.jobs if job.fact.is_live]

    @property
    def unknown(self) -> list[RunJob]:
        """Those that could not be asked about."""
        return [job for job in self.jobs if job.fact.knowledge is Knowledge.COULD_NOT_ASK]

    @property
    def trouble(self) -> str | None:
        """Why some could not be asked about; None when all were."""
        return self.unknown[0].fact.detail if self.unknown else None

    def of(self, benchmark: str | None, index: int | None) -> RunJobs:
        """Only those of a benchmark and of a shard; None is any."""
        chosen = [
            job
            for job in self.jobs
            if (benchmark is None or job.benchmark == benchmark) and (index is None or job.index == index)
        ]
        return RunJobs(tuple(chosen), self.open_tokens)


def shard_words(benchmark: str, index: int) -> str:
    """``math shard 3``, or ``math finisher``."""
    return f"{benchmark} finisher" if index == FINISHER else f"{benchmark} shard {index}"


def jobs_of(run: RunDir, plan: SubmitPlan) -> RunJobs:
    """The jobs of ``run`` and what the scheduler says of them now. Raises CorruptArtifactError for a broken receipt."""
    return ask_about(read_submissions(run.submissions), executor_for(run, plan).scheduler)


def ask_about(submissions: Iterable[Submission], scheduler: Scheduler) -> RunJobs:
    """The jobs of ``submissions`` after one question."""
    known = list(submissions)
    facts = scheduler.ask(questions(known))
    jobs = [
        RunJob(s.prepared.benchmark, index, job_id, s.token, s.position_of(index), facts[job_id])
        for s in known
        for index, job_id in s.jobs.items()
    ]
    return RunJobs(tuple(jobs), tuple(s.token for s in known if s.outcome is Outcome.OPEN))

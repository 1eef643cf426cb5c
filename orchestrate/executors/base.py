"""The contract of an executor: a batch of jobs in, their ids out, and an honest answer when it is not known what happened."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from collector.registry import Registry
from orchestrate.runs.directory import RunDir
from orchestrate.runs.plan import BenchmarkPlan, SubmitPlan
from orchestrate.runs.submissions import FINISHER
from orchestrate.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Unit:
    """One shard that a job fills; ``FINISHER`` for the job that follows all others of its benchmark."""

    benchmark: BenchmarkPlan
    index: int


@dataclass(frozen=True, slots=True)
class JobBatch:
    """Jobs that are submitted together, under a name that no other submission has. Each fills its units."""

    token: str
    jobs: tuple[tuple[Unit, ...], ...]
    #: Jobs that have to end first, however they end; shards have none, a finisher has those of its benchmark.
    after: tuple[str, ...] = ()

    @property
    def benchmarks(self) -> list[BenchmarkPlan]:
        """The benchmarks whose shards are filled, in the order of the plan."""
        return list({unit.benchmark.name: unit.benchmark for job in self.jobs for unit in job}.values())

    @property
    def is_packed(self) -> bool:
        """Whether a job has several shards, or the jobs are of several benchmarks."""
        return any(len(job) > 1 for job in self.jobs) or len(self.benchmarks) > 1

    @property
    def owner(self) -> BenchmarkPlan | None:
        """Whose directory holds the batch and its logs; None for a packed one, which has its place in the run's."""
        return None if self.is_packed else self.jobs[0][0].benchmark

    @property
    def names(self) -> list[list[tuple[str, int]]]:
        """The benchmark and index of each shard, job by job."""
        return [[(unit.benchmark.name, unit.index) for unit in job] for job in self.jobs]

    @property
    def is_finisher(self) -> bool:
        """Whether it publishes what the benchmark's shards left, instead of filling shards."""
        return self.jobs[0][0].index == FINISHER

    def of(self, benchmark: str) -> dict[int, int]:
        """Each shard of ``benchmark`` and the position of the job that fills it."""
        return {
            unit.index: position for position, job in enumerate(self.jobs) for unit in job if unit.benchmark.name == benchmark
        }


@dataclass(frozen=True, slots=True)
class Accepted:
    """The jobs exist: their ids in the batch's order."""

    jobs: Sequence[str]


@dataclass(frozen=True, slots=True)
class Refused:
    """No job exists, for certain."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """A job may exist: the answer was lost, late or makes no sense."""

    reason: str
    #: The request may still be on its way, so that a job may appear later.
    may_arrive: bool = False


Answer: TypeAlias = Accepted | Refused | Unclear


class Executor(ABC):
    """Runs the shards of one run. Made for one command; holds no state that the run directory does not."""

    #: Whether a job can be made to follow others; where not, the last job of a benchmark does the finisher's work.
    has_finishers: ClassVar[bool] = False

    def __init__(self, run: RunDir, plan: SubmitPlan) -> None:
        self.run = run
        self.plan = plan

    @property
    @abstractmethod
    def scheduler(self) -> Scheduler:
        """Who can say what became of the jobs."""

    @abstractmethod
    def check(self) -> None:
        """Raise UnavailableError when nothing can be submitted from here. Called before anything is created."""

    @abstractmethod
    def batch_limit(self) -> int:
        """The most jobs that one batch may have. May ask the scheduler."""

    @abstractmethod
    def preview(self, batch: JobBatch) -> str:
        """The script that ``submit`` would run, for people. Writes nothing."""

    @abstractmethod
    def submit(self, batch: JobBatch) -> Answer:
        """Start the batch's jobs. Called at most once for a token, under the submit lock."""

    @abstractmethod
    def job_ids(self, count: int, found: str) -> Sequence[str]:
        """The ids of a batch's ``count`` jobs when the scheduler lists its token as the job ``found``."""


EXECUTORS: Registry[Executor] = Registry(
    kind="compute type",
    group="gym_eval.executors",
    base=Executor,
    builtin={"slurm": "orchestrate.executors.slurm:SlurmArrays", "local": "orchestrate.executors.local:LocalProcesses"},
)


def executor_for(run: RunDir, plan: SubmitPlan) -> Executor:
    """The executor that the plan's compute entry asks for."""
    return EXECUTORS.load(plan.config.the_compute.type)(run, plan)

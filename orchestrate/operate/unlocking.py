"""Locks of a run that are in the way: who holds each, whether its job lives as far as is known, and freeing it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from collector.artifacts import RunArtifacts
from collector.errors import LockHeldError
from collector.shard.lock import Holder, is_held, read_holder
from collector.shard.unlock import explain_unlock, unlock
from orchestrate.operate.jobs import jobs_of
from orchestrate.runs.directory import RunDir, read_plan
from orchestrate.scheduler import JobFact, Knowledge


@dataclass(frozen=True, slots=True)
class LockInTheWay:
    """A lock that is held, what is known of it in one line, and what the scheduler says of its owner's job."""

    path: Path
    words: str
    holder: Holder | None
    fact: JobFact | None = None

    @property
    def is_alive(self) -> bool:
        """Whether the scheduler says that the owner's job waits or runs."""
        return self.fact is not None and self.fact.is_live

    @property
    def shown(self) -> str:
        """The line for people."""
        if self.fact is None:
            return self.words
        job = self.holder.job_id if self.holder else ""
        match self.fact.knowledge:
            case Knowledge.KNOWN:
                return f"{self.words} The scheduler says that job {job} is {self.fact.state}."
            case Knowledge.NOT_THERE:
                return f"{self.words} The scheduler has no job {job} any more."
            case Knowledge.COULD_NOT_ASK:
                return f"{self.words} The scheduler could not be asked about job {job} ({self.fact.detail})."


def lock_at(path: Path) -> LockInTheWay:
    """The lock of a rollouts file, named by the file or by the lock itself. Raises NotFoundError without one."""
    lock = path if path.name.endswith(".lock") else RunArtifacts(path).lock
    lock = lock.absolute()
    return LockInTheWay(lock, explain_unlock(lock), read_holder(lock))


def locks_in_run(run: RunDir) -> list[LockInTheWay]:
    """Every lock of the run's shards that somebody holds, after one question to the scheduler."""
    plan = read_plan(run)
    paths = [shard.lock for benchmark in plan.benchmarks for shard in run.shards(benchmark)]
    held = [path for path in paths if is_held(path)]
    if not held:
        return []
    facts = {job.job_id: job.fact for job in jobs_of(run, plan).jobs}
    return [_with_fact(path, facts) for path in held]


def free(lock: LockInTheWay) -> str:
    """Free the lock and say what was done. Raises LockHeldError when its owner lives as far as anybody can see."""
    if lock.is_alive:
        job = lock.holder.job_id if lock.holder else ""
        raise LockHeldError(f"its owner, job {job}, is alive.", "Cancel that job: gym eval cancel.", lock.path)
    return unlock(lock.path)


def _with_fact(path: Path, facts: Mapping[str, JobFact]) -> LockInTheWay:
    holder = read_holder(path)
    fact = facts.get(holder.job_id) if holder is not None and holder.job_id is not None else None
    return LockInTheWay(path, explain_unlock(path), holder, fact)

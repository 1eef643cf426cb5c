"""What the scheduler says of jobs, as typed facts: one squeue and one sacct per question, each bounded in time.

"Could not ask" is an answer of its own, and nothing acts on it.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

#: Seconds that one question may take; a controller under load answers in less, and nobody waits longer at a prompt.
ASK_TIMEOUT_S: Final = 10.0
#: squeue's share of the seconds that a person who looks waits for; sacct has the rest, and at least ``_LEAST_S``.
_SQUEUE_SHARE: Final = 0.6
_LEAST_S: Final = 1.0
#: Variables that change what squeue and sacct print, or what sbatch submits, when a job or a shell profile set them.
_SCRUBBED: Final = ("SLURM_", "SBATCH_", "SRUN_", "SQUEUE_", "SACCT_", "PMI_", "PMIX_")
#: The one variable of that family that says which cluster is meant.
_KEPT: Final = frozenset({"SLURM_CONF"})
#: PREEMPTED counts: where the site requeues it is about to be pending, and where not squeue soon forgets it.
_LIVE: Final = frozenset(
    {"PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "COMPLETING", "STAGE_OUT", "SIGNALING", "RESIZING"}
    | {"REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT", "PREEMPTED"}
)


class Knowledge(StrEnum):
    """How much is known about a job."""

    KNOWN = "known"
    #: The scheduler answered, and it has no such job.
    NOT_THERE = "not_there"
    COULD_NOT_ASK = "could_not_ask"


@dataclass(frozen=True, slots=True)
class JobFact:
    """What the scheduler says of one job now.

    ``state`` is Slurm's word, or ``PENDING``, ``RUNNING`` and ``GONE`` of a local process.
    """

    knowledge: Knowledge
    state: str = ""
    #: The reason for a pending job, or why the question could not be asked.
    detail: str = ""

    @property
    def is_live(self) -> bool:
        """Whether the job is queued or running for certain."""
        return self.knowledge is Knowledge.KNOWN and self.state in _LIVE

    @property
    def is_over(self) -> bool:
        """Whether the job certainly neither runs nor waits."""
        return self.knowledge is not Knowledge.COULD_NOT_ASK and not self.is_live


@dataclass(frozen=True, slots=True)
class QueuedName:
    """A job found by its unique name: the id that sbatch gave it, without the array index."""

    knowledge: Knowledge
    job_id: str = ""
    detail: str = ""


class Scheduler(Protocol):
    """Answers for the jobs of one executor."""

    def ask(self, jobs: Mapping[str, Iterable[str]], *, limit_s: float | None = None) -> dict[str, JobFact]:
        """The facts of every job id in ``jobs``, which maps each submission's unique name to its job ids.

        Within ``limit_s`` altogether, for somebody who looks; without it as long as the answer may take that is acted on.
        """
        ...

    def find(self, name: str) -> QueuedName:
        """The job submitted under the unique name ``name``, whether or not its submission was acknowledged."""
        ...


@dataclass(frozen=True, slots=True)
class _Listing:
    """Job id to fact, as one program printed them; None when it could not be asked."""

    jobs: dict[str, JobFact] | None
    trouble: str = ""


class SlurmScheduler:
    """Asks squeue, and sacct for what squeue has forgotten; accounting may be off."""

    def ask(self, jobs: Mapping[str, Iterable[str]], *, limit_s: float | None = None) -> dict[str, JobFact]:
        """One squeue call; one sacct call when squeue does not know all of them."""
        wanted = {job_id: name for name, ids in jobs.items() for job_id in ids}
        if not wanted:
            return {}
        begun = time.monotonic()
        # What squeue leaves is sacct's: accounting often answers while the controller is away.
        queue = _squeue(sorted(jobs), timeout_s=ASK_TIMEOUT_S if limit_s is None else limit_s * _SQUEUE_SHARE)
        known = queue.jobs or {}
        missing = [job_id for job_id in wanted if job_id not in known]
        left_s = ASK_TIMEOUT_S if limit_s is None else max(_LEAST_S, limit_s - (time.monotonic() - begun))
        books = _sacct(missing, timeout_s=left_s) if missing else _Listing({})
        return {job_id: _combine(job_id, queue, books) for job_id in wanted}

    def find(self, name: str) -> QueuedName:
        """By squeue alone: a name is looked up right after its submission, when squeue still lists even ended jobs."""
        listing = _squeue([name])
        if listing.jobs is None:
            return QueuedName(Knowledge.COULD_NOT_ASK, detail=listing.trouble)
        for job_id in listing.jobs:
            return QueuedName(Knowledge.KNOWN, job_id.partition("_")[0])
        return QueuedName(Knowledge.NOT_THERE)


def scrubbed_environment() -> dict[str, str]:
    """The environment without what an enclosing job or a profile set for Slurm's programs."""
    return {key: value for key, value in os.environ.items() if key in _KEPT or not key.startswith(_SCRUBBED)}


def max_array_size() -> int:
    """The most tasks an array may have here; Slurm's own default when the controller does not say."""
    answer = ask_program(["scontrol", "show", "config"])
    if answer.trouble is None:
        for line in answer.text.splitlines():
            key, _, value = line.partition("=")
            if key.strip() == "MaxArraySize" and value.strip().isdigit():
                return max(1, int(value))
    return 1001


def _combine(job_id: str, queue: _Listing, books: _Listing) -> JobFact:
    if queue.jobs is not None and job_id in queue.jobs:
        return queue.jobs[job_id]
    if books.jobs is not None and job_id in books.jobs:
        booked = books.jobs[job_id]
        # Accounting may lag behind; a job that the queue does not know is not live, whatever the books say.
        return booked if queue.jobs is None or not booked.is_live else JobFact(Knowledge.NOT_THERE)
    if queue.jobs is None:
        return JobFact(Knowledge.COULD_NOT_ASK, detail=queue.trouble)
    return JobFact(Knowledge.NOT_THERE)


def _squeue(names: Sequence[str], *, timeout_s: float = ASK_TIMEOUT_S) -> _Listing:
    # -t all: ended jobs are listed for MinJobAge seconds, which is all there is where accounting is off.
    command = ["squeue", "--noheader", "--array", "--states=all", f"--name={','.join(names)}", "--format=%i|%T|%r"]
    answer = ask_program(command, timeout_s=timeout_s)
    if answer.trouble is not None:
        return _Listing(None, answer.trouble)
    facts = (line.split("|", 2) for line in answer.text.splitlines() if line.count("|") >= 2)
    return _Listing(
        {job_id: JobFact(Knowledge.KNOWN, state, reason) for text, state, reason in facts if (job_id := leader_of(text))}
    )


def _sacct(job_ids: Sequence[str], *, timeout_s: float) -> _Listing:
    bases = sorted({job_id.partition("_")[0] for job_id in job_ids})
    command = ["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={','.join(bases)}", "--format=JobID,State"]
    answer = ask_program(command, timeout_s=timeout_s)
    if answer.trouble is not None:
        return _Listing(None, answer.trouble)
    rows = (line.split("|", 1) for line in answer.text.splitlines() if "|" in line)
    # "CANCELLED by 0" is one state with a remark.
    return _Listing(
        {job_id: JobFact(Knowledge.KNOWN, state.split(" ")[0], state) for text, state in rows if (job_id := leader_of(text))}
    )


def leader_of(text: str) -> str | None:
    """The id of a job as Slurm's programs list it; None for a component of a heterogeneous job, ``7+1``, but its first.

    Components are queued, requeued and cancelled together, under the id of the first.
    """
    job_id, plus, component = text.strip().partition("+")
    return job_id if not plus or component == "0" else None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a program of Slurm printed; ``trouble`` is why that is no answer, None when it is one."""

    text: str = ""
    trouble: str | None = None


def ask_program(command: list[str], *, timeout_s: float = ASK_TIMEOUT_S, env: Mapping[str, str] | None = None) -> Answer:
    """What ``command`` prints, within its time; ``env`` is added to its environment."""
    environ = {**scrubbed_environment(), **(env or {})}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, env=environ, check=False)
    except FileNotFoundError:
        return Answer(trouble=f"{command[0]} is not installed here")
    except subprocess.TimeoutExpired:
        return Answer(trouble=f"{command[0]} gave no answer within {timeout_s:.0f} s")
    if done.returncode:
        return Answer(done.stdout, f"{command[0]}: {' '.join(done.stderr.split()) or f'exit code {done.returncode}'}")
    return Answer(done.stdout)

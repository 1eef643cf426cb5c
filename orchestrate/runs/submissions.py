"""The receipts of a run: what was about to be submitted, what became of it, and which shards need a job now.

``submissions.jsonl`` grows under the submit lock only. "prepared" is durable before the scheduler hears of a batch, so a batch
whose answer was lost is settled by looking its unique name up, never by submitting it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from collector import durable
from collector.errors import CorruptArtifactError
from orchestrate.scheduler import JobFact, Knowledge, Scheduler

FORMAT: Final = 1
#: Stands for the finisher among the shard indexes of a receipt: the job that follows the others of its benchmark.
FINISHER: Final = -1


class _Receipt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="event"):
    schema_version: int = FORMAT
    at: str
    token: str


class Prepared(_Receipt, frozen=True, tag="prepared"):
    """A batch is about to be submitted. After ``deadline`` (Unix seconds) no answer to it can still be on its way."""

    benchmark: str
    indexes: tuple[int, ...]
    deadline: float
    #: Of a packed batch, which has a receipt for each of its benchmarks: the job that fills each shard, by its position.
    positions: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET


class Submitted(_Receipt, frozen=True, tag="submitted"):
    """The scheduler has the batch: shard index to job id."""

    jobs: dict[int, str]
    #: True: found by its name, since its own answer was lost.
    found: bool = False
    #: Of a packed batch: whose shards these are.
    benchmark: str | msgspec.UnsetType = msgspec.UNSET


class Failed(_Receipt, frozen=True, tag="failed"):
    """The scheduler does not have the batch and will not."""

    reason: str


Receipt: TypeAlias = Prepared | Submitted | Failed

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Receipt] = msgspec.json.Decoder(Receipt)


class Outcome(StrEnum):
    """What became of a batch."""

    #: Prepared, and no answer is recorded.
    OPEN = "open"
    SUBMITTED = "submitted"
    FAILED = "failed"


@dataclass(slots=True)
class Submission:
    """One batch with everything its receipts say."""

    prepared: Prepared
    outcome: Outcome = Outcome.OPEN
    jobs: Mapping[int, str] = field(default_factory=dict[int, str])
    reason: str = ""

    @property
    def token(self) -> str:
        """The batch's unique name."""
        return self.prepared.token

    @property
    def is_packed(self) -> bool:
        """Whether its jobs fill shards of several benchmarks, or several shards."""
        return self.prepared.positions is not msgspec.UNSET

    def position_of(self, index: int) -> int:
        """Which of the batch's jobs fills the shard."""
        place = self.prepared.indexes.index(index)
        return place if self.prepared.positions is msgspec.UNSET else self.prepared.positions[place]

    @property
    def is_finisher(self) -> bool:
        """Whether it is no shard's, but the job that follows all jobs of a benchmark."""
        return self.prepared.indexes == (FINISHER,)


class ShardNeed(StrEnum):
    """What a shard needs from a submit command."""

    #: Nothing: it is final.
    FINAL = "final"
    #: Nothing: its job is queued or running.
    LIVE = "live"
    #: It cannot be told; a job may exist, so none is started.
    UNCERTAIN = "uncertain"
    #: A job.
    JOB = "job"


def encode(receipt: Receipt) -> bytes:
    """One line, newline included."""
    return _encoder.encode(receipt) + b"\n"


def parse(line: bytes) -> Receipt:
    """The receipt that ``line`` says. Raises ValueError for anything else, another format number included."""
    receipt = _decoder.decode(line)
    if receipt.schema_version != FORMAT:
        raise ValueError(f"receipt format {receipt.schema_version} is not supported (this program reads format {FORMAT})")
    return receipt


def read_submissions(path: Path) -> list[Submission]:
    """Every batch in the order of its preparation; a torn last line is no receipt."""
    whole, _, _torn = path.read_bytes().rpartition(b"\n") if path.exists() else (b"", b"", b"")
    return fold(_parse_line(path, number, line) for number, line in enumerate(whole.split(b"\n"), 1) if line)


def _parse_line(path: Path, number: int, line: bytes) -> Receipt:
    try:
        return parse(line)
    except ValueError as error:
        raise CorruptArtifactError(path, number, f"not a receipt ({error}).") from error


def fold(receipts: Iterable[Receipt]) -> list[Submission]:
    """The batches that ``receipts`` describe."""
    found: dict[str, dict[str, Submission]] = {}
    for receipt in receipts:
        match receipt:
            case Prepared():
                found.setdefault(receipt.token, {})[receipt.benchmark] = Submission(receipt)
            case Submitted():
                for name, submission in found[receipt.token].items():
                    if receipt.benchmark in (msgspec.UNSET, name):
                        submission.outcome, submission.jobs = Outcome.SUBMITTED, receipt.jobs
            case Failed():
                for submission in found[receipt.token].values():
                    submission.outcome, submission.reason = Outcome.FAILED, receipt.reason
    return [submission for batch in found.values() for submission in batch.values()]


def questions(submissions: Iterable[Submission]) -> dict[str, set[str]]:
    """What a scheduler is asked for all jobs of ``submissions``: the job ids of each batch by its name."""
    asked: dict[str, set[str]] = {}
    for submission in submissions:
        if submission.jobs:
            asked.setdefault(submission.token, set()).update(submission.jobs.values())
    return asked


def append(path: Path, *receipts: Receipt) -> None:
    """Add ``receipts`` durably, in one write; a torn line of a crash is cut off first. The caller holds the submit lock."""
    durable.append_lines(path, b"".join(map(encode, receipts)))


def latest_jobs(submissions: Sequence[Submission], benchmark: str) -> dict[int, str]:
    """The newest job of each shard of ``benchmark``; its finisher is not among them."""
    jobs: dict[int, str] = {}
    for submission in submissions:
        if submission.prepared.benchmark == benchmark and not submission.is_finisher:
            jobs.update(submission.jobs)
    return jobs


def unanswered_or_refused(submissions: Sequence[Submission], benchmark: str) -> list[Submission]:
    """Batches of shards that the scheduler refused or never answered about and that no later batch makes up for, in order."""
    last: dict[int, Submission] = {}
    for submission in submissions:
        if submission.prepared.benchmark == benchmark and not submission.is_finisher:
            last.update(dict.fromkeys(submission.prepared.indexes, submission))
    found = {submission.token: submission for submission in last.values() if submission.outcome is not Outcome.SUBMITTED}
    return list(found.values())


def is_refused(submissions: Sequence[Submission]) -> bool:
    """Whether the scheduler took none of what was submitted, and certainly so: the run never had a job."""
    return bool(submissions) and all(submission.outcome is Outcome.FAILED for submission in submissions)


def has_live_finisher(submissions: Sequence[Submission], benchmark: str, facts: Mapping[str, JobFact]) -> bool:
    """Whether the scheduler knows that the newest finisher of ``benchmark`` runs or will."""
    newest = latest_finisher(submissions, benchmark)
    return newest is not None and any(job_id in facts and facts[job_id].is_live for job_id in newest.jobs.values())


def latest_finisher(submissions: Sequence[Submission], benchmark: str) -> Submission | None:
    """The newest finisher of ``benchmark`` that was not refused; None when it never had one."""
    mine = [s for s in submissions if s.is_finisher and s.prepared.benchmark == benchmark and s.outcome is not Outcome.FAILED]
    return mine[-1] if mine else None


def shard_needs(
    indexes: Iterable[int],
    *,
    final: Mapping[int, bool],
    submissions: Sequence[Submission],
    facts: Mapping[str, JobFact],
) -> dict[int, ShardNeed]:
    """What each shard of one benchmark needs. ``submissions`` are those of the benchmark."""
    return {index: _need(index, final[index], submissions, facts) for index in indexes}


def _need(index: int, is_final: bool, submissions: Sequence[Submission], facts: Mapping[str, JobFact]) -> ShardNeed:
    if is_final:
        return ShardNeed.FINAL
    mine = [submission for submission in submissions if index in submission.prepared.indexes]
    if any(submission.outcome is Outcome.OPEN for submission in mine):
        return ShardNeed.UNCERTAIN
    known = [facts[submission.jobs[index]] for submission in mine if index in submission.jobs]
    if any(fact.is_live for fact in known):
        return ShardNeed.LIVE
    if any(fact.knowledge is Knowledge.COULD_NOT_ASK for fact in known):
        return ShardNeed.UNCERTAIN
    return ShardNeed.JOB


def live_jobs(submissions: Sequence[Submission], benchmark: str, scheduler: Scheduler) -> set[str]:
    """Jobs of shards of ``benchmark`` that live or cannot be asked about; a submission without an answer counts by its name."""
    mine = [s for s in submissions if s.prepared.benchmark == benchmark and not s.is_finisher]
    facts = scheduler.ask(questions(mine))
    open_ones = {s.token for s in mine if s.outcome is Outcome.OPEN}
    return open_ones | {job_id for job_id, fact in facts.items() if not fact.is_over}

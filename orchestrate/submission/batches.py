"""Which jobs a submission makes of the shards that need one, in which batches, and the receipts of a batch. Pure."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

import msgspec

from orchestrate.executors.base import JobBatch, Unit
from orchestrate.runs.plan import BenchmarkPlan, SubmitPlan, batches
from orchestrate.runs.submissions import FINISHER, Prepared, ShardNeed, Submitted
from orchestrate.submission.needs import Needs


def missing_units(plan: SubmitPlan, needs: Needs) -> list[Unit]:
    """The shards that need a job, benchmark by benchmark."""
    return [
        Unit(benchmark, index)
        for benchmark in plan.benchmarks
        for index, need in needs.shards[benchmark.name].items()
        if need is ShardNeed.JOB
    ]


def shard_batches(plan: SubmitPlan, units: Sequence[Unit], limit: int) -> Iterator[JobBatch]:
    """The batches for ``units``: of one benchmark each, or with ``job.pack`` of jobs that fill so many shards each."""
    pack = plan.config.job.pack
    if pack > 1:
        jobs = [tuple(units[start : start + pack]) for start in range(0, len(units), pack)]
        for start in range(0, len(jobs), limit):
            yield JobBatch(_token("pack", plan), tuple(jobs[start : start + limit]))
        return
    for benchmark in plan.benchmarks:
        mine = [unit.index for unit in units if unit.benchmark.name == benchmark.name]
        for part in batches(mine, limit):
            yield JobBatch(_token(benchmark.slug[:40], plan), tuple((Unit(benchmark, index),) for index in part))


def finisher_batch(plan: SubmitPlan, benchmark: BenchmarkPlan, after: tuple[str, ...]) -> JobBatch:
    """The job that follows all others of ``benchmark``."""
    return JobBatch(_token(f"finish-{benchmark.slug[:40]}", plan), ((Unit(benchmark, FINISHER),),), after)


def receipts_for(batch: JobBatch, *, at: str, deadline: float) -> list[Prepared]:
    """What is written before the batch is submitted: one receipt for each of its benchmarks."""
    found: list[Prepared] = []
    for benchmark in batch.benchmarks:
        positions = batch.of(benchmark.name)
        found.append(
            Prepared(
                at=at,
                token=batch.token,
                benchmark=benchmark.name,
                indexes=tuple(positions),
                deadline=deadline,
                positions=tuple(positions.values()) if batch.is_packed else msgspec.UNSET,
            )
        )
    return found


def submitted_of(prepared: Prepared, job_ids: Sequence[str], *, at: str, found: bool) -> Submitted:
    """What is written when the batch's jobs exist, for one of its benchmarks."""
    is_packed = prepared.positions is not msgspec.UNSET
    positions = prepared.positions if prepared.positions is not msgspec.UNSET else range(len(prepared.indexes))
    return Submitted(
        at=at,
        token=prepared.token,
        jobs={index: job_ids[position] for index, position in zip(prepared.indexes, positions, strict=True)},
        found=found,
        benchmark=prepared.benchmark if is_packed else msgspec.UNSET,
    )


def jobs_in(prepared: Sequence[Prepared]) -> int:
    """How many jobs the batch has whose receipts these are."""
    return max(
        len(receipt.indexes) if receipt.positions is msgspec.UNSET else max(receipt.positions) + 1 for receipt in prepared
    )


def _token(what: str, plan: SubmitPlan) -> str:
    """A name that no other submission has, short enough for squeue's columns to show what matters."""
    return f"gym-{what}-{plan.identity_digest[:6]}-{secrets.token_hex(4)}"

"""How a job leaves shards that it did not finish: why, and back to the queue when its time is over and they may go on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from collector.stop import StopReason
from orchestrate.jobs.context import JobContext
from orchestrate.jobs.requeue import disjoint, read_job_runs, requeue_job, why_not_again
from orchestrate.jobs.shard_work import ShardWork
from orchestrate.jobs.stops import JobStops


async def end_unfinished(shards: Sequence[ShardWork], left: Sequence[ShardWork], stops: JobStops, context: JobContext) -> None:
    """Say in each shard of ``left``, of all ``shards`` of the job, why it is unfinished; requeue the job where that helps."""
    if not left:
        return
    if stops.reason is not StopReason.TIME_LIMIT or not context.on_slurm:
        for shard in left:
            # Slurm requeues what it preempted by itself, and says nothing of it to the job.
            fix = "A preempted job comes back by itself; after anything else, run the submit command again."
            shard.leave_unfinished(f" ({stops.reason or 'stopped'}).", fix)
        return
    runs = disjoint([run for shard in shards for run in read_job_runs(shard.artifacts.journal)])
    again: list[ShardWork] = []
    for shard in left:
        why = why_not_again(shard.requeue, runs, context.job_id, context.restarts + 1)
        if why is None:
            again.append(shard)
        else:
            shard.leave_unfinished(f", and the job may not run again: {why}.", "Run the submit command again.")
    if again:
        await _requeue(again, context)


async def _requeue(shards: Sequence[ShardWork], context: JobContext) -> None:
    for shard in shards:
        shard.say(f"{shard.left_in_words}; the time is over, going back to the queue (requeue {context.restarts + 1})")
    # Slurm ends this process when it requeues the job; nothing of ours runs any more by then.
    is_requeued = await asyncio.to_thread(requeue_job, context.job_id)
    for shard in shards:
        if is_requeued:
            shard.leave_unfinished(".", "The job was requeued.")
        else:
            shard.leave_unfinished(", and Slurm did not requeue the job.", "Run the submit command again.")

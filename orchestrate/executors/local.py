"""Shards as processes of this machine: all are started, and as many run at once as there are slots."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import filelock

from collector import durable
from collector.errors import ConfigError
from orchestrate.executors.base import Accepted, Answer, Executor, JobBatch, Refused
from orchestrate.processes import ProcessTable, local_job_id
from orchestrate.rundir import RunDir
from orchestrate.scheduler import Scheduler

#: Every waiting shard is a process of about 30 MB.
SHARD_LIMIT: Final = 64
#: Seconds between two looks for a free slot.
_SLOT_PAUSE_S: Final = 0.2


class LocalProcesses(Executor):
    """The executor behind ``compute: {type: local}``."""

    @property
    def scheduler(self) -> Scheduler:
        return ProcessTable()

    def check(self) -> None:
        count = sum(benchmark.shards for benchmark in self.plan.benchmarks)
        if count > SHARD_LIMIT:
            raise ConfigError(f"{count} shards on one machine; the limit is {SHARD_LIMIT}.", "Use fewer shards, or Slurm.")

    def batch_limit(self) -> int:
        return SHARD_LIMIT

    def preview(self, batch: JobBatch) -> str:
        shards = ", ".join(map(str, batch.indexes))
        return f"# processes on this machine for shard {shards} of {batch.benchmark.name}\n"

    def submit(self, batch: JobBatch) -> Answer:
        # submitit takes 0.2 s to import, and a preview or a status does without it.
        from orchestrate.executors.submitit_local import DetachedLocalExecutor  # noqa: PLC0415
        from orchestrate.executors.tasks import shard_calls  # noqa: PLC0415

        executor = DetachedLocalExecutor(self.run.jobs(batch.benchmark) / batch.token, logs=self.run.logs(batch.benchmark))
        calls = shard_calls(self.run.root, batch.benchmark.name, batch.indexes)
        try:
            jobs = executor.submit_array(calls)
        except OSError as error:
            return Refused(f"a process cannot be started: {error}")
        return Accepted({index: local_job_id(int(job.job_id)) for index, job in zip(batch.indexes, jobs, strict=True)})

    def job_ids(self, batch: JobBatch, found: str) -> Mapping[int, str]:
        # Processes are started one by one, so a submission that was cut short has started some of them.
        return dict.fromkeys(batch.indexes, found)


@asynccontextmanager
async def local_slot(run: RunDir, count: int) -> AsyncGenerator[int]:
    """One of ``count`` slots of the run, waited for as long as it takes; free again when this process ends, however it ends."""
    durable.make_dir(run.slot(0).parent)
    while True:
        for number in range(count):
            lock = filelock.FileLock(run.slot(number), timeout=0, thread_local=False, fallback_to_soft=False)
            try:
                lock.acquire()
            except filelock.Timeout:
                continue
            try:
                yield number
            finally:
                lock.release()
            return
        await asyncio.sleep(_SLOT_PAUSE_S)

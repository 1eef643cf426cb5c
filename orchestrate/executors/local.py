"""Shards as processes of this machine: all are started, and as many run at once as there are slots."""

from __future__ import annotations

import math
from collections.abc import Sequence

from collector.errors import ConfigError
from collector.text.counted import counted
from orchestrate.config.compute import LocalCompute
from orchestrate.executors.base import Accepted, Answer, Executor, JobBatch, Refused
from orchestrate.jobs.processes import ProcessTable, local_job_id
from orchestrate.scheduler import Scheduler


class LocalProcesses(Executor):
    """The executor behind ``compute: {type: local}``."""

    @property
    def scheduler(self) -> Scheduler:
        return ProcessTable(self.run)

    def check(self) -> None:
        config = self.plan.config
        jobs = math.ceil(sum(benchmark.shards for benchmark in self.plan.benchmarks) / config.job.pack)
        if jobs > self.batch_limit():
            name = next(iter(config.compute))
            raise ConfigError(
                f"{counted(jobs, 'job')} on one machine, each a process of about 30 MB while it waits; "
                f"compute.{name}.max_processes is {self.batch_limit()}.",
                "Raise it, put several shards into a job (job.pack), or use fewer shards.",
            )

    def batch_limit(self) -> int:
        compute = self.plan.config.the_compute
        return compute.max_processes if isinstance(compute, LocalCompute) else 1

    def preview(self, batch: JobBatch) -> str:
        each = ["; ".join(f"{unit.benchmark.name} shard {unit.index}" for unit in job) for job in batch.jobs]
        return "# processes on this machine, one for each line\n" + "".join(f"#   {shards}\n" for shards in each)

    def submit(self, batch: JobBatch) -> Answer:
        # submitit takes 0.2 s to import, and a preview or a status does without it.
        from orchestrate.executors.submitit_local import DetachedLocalExecutor  # noqa: PLC0415
        from orchestrate.executors.tasks import shard_calls  # noqa: PLC0415

        executor = DetachedLocalExecutor(self.run.jobs(batch.owner) / batch.token, logs=self.run.logs(batch.owner))
        calls = shard_calls(self.run.root, batch.names)
        try:
            jobs = executor.submit_array(calls)
        except OSError as error:
            return Refused(f"a process cannot be started: {error}")
        return Accepted([local_job_id(int(job.job_id)) for job in jobs])

    def job_ids(self, count: int, found: str) -> Sequence[str]:
        # Processes are started one by one, so a submission that was cut short has started some of them.
        return [found] * count

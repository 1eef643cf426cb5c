"""Shards as Slurm jobs: one array per benchmark, each task requeued when it is preempted or runs out of time."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import Final

from collector import durable
from collector.errors import UnavailableError
from orchestrate.config.compute import NodePool, SlurmCompute
from orchestrate.config.pools import is_heterogeneous
from orchestrate.config.values import slurm_time, walltime_seconds
from orchestrate.executors.base import Accepted, Answer, Executor, JobBatch, Refused, Unclear
from orchestrate.jobs.timing import warning_seconds
from orchestrate.scheduler import Scheduler, SlurmScheduler, max_array_size
from slurm_templates.render import FlagValue, JobScript, literal_path, render_job

#: Resources that a shard needs and a finisher does not.
SHARD_FLAGS: Final = frozenset(
    {"cpus-per-task", "mem", "gpus-per-node", "gres", "exclusive", "mem-per-cpu", "mem-per-gpu", "constraint"}
    | {"ntasks-per-node"}
)
#: Merging takes a sixth of it whatever the size; where a site has no default, leaving it out would ask for a whole node.
FINISHER_MEM: Final = "1G"


class SlurmArrays(Executor):
    """The executor behind ``compute: {type: slurm}``."""

    has_finishers = True

    @property
    def compute(self) -> SlurmCompute:
        """The plan's compute entry."""
        found = self.plan.config.the_compute
        if not isinstance(found, SlurmCompute):
            raise TypeError("the registry gives a slurm entry to this executor")
        return found

    @property
    def scheduler(self) -> Scheduler:
        return SlurmScheduler()

    def check(self) -> None:
        missing = [name for name in ("sbatch", "squeue", "srun") if shutil.which(name) is None]
        if missing:
            raise UnavailableError(f"{', '.join(missing)} not found.", "Submit from a machine with Slurm's programs.")

    def batch_limit(self) -> int:
        # Slurm has no arrays of heterogeneous jobs.
        return 1 if is_heterogeneous(self.compute) else max_array_size()

    def preview(self, batch: JobBatch) -> str:
        return render_job(self.script(batch, len(batch.jobs)))

    def submit(self, batch: JobBatch) -> Answer:
        # submitit takes 0.2 s to import, and a preview or a status does without it.
        from orchestrate.executors.submitit_slurm import SbatchError, TemplateSlurmExecutor  # noqa: PLC0415
        from orchestrate.executors.tasks import finisher_call, shard_calls  # noqa: PLC0415

        executor = TemplateSlurmExecutor(
            self.run.jobs(batch.owner) / batch.token,
            script=lambda count: render_job(self.script(batch, count)),
            walltime_min=walltime_seconds(self.compute.walltime) // 60,
        )
        root = self.run.root
        if batch.is_finisher:
            calls = [finisher_call(root, batch.benchmarks[0].name, batch.token)]
        else:
            calls = shard_calls(root, batch.names)
        try:
            # Slurm makes no directory for a job's output: a job without one ends before it begins.
            durable.make_dir(self.run.logs(batch.owner))
            jobs = executor.submit_array(calls)
        except SbatchError as error:
            return Unclear(error.reason, may_arrive=error.may_arrive)
        except OSError as error:
            # run_sbatch makes its own an SbatchError: what fails here is the staging, and sbatch was not asked.
            return Refused(f"its tasks cannot be written: {error.strerror}")
        return Accepted([job.job_id for job in jobs])

    def job_ids(self, count: int, found: str) -> Sequence[str]:
        from orchestrate.executors.submitit_slurm import array_ids  # noqa: PLC0415

        return array_ids(found, count)

    def script(self, batch: JobBatch, count: int) -> JobScript:
        """The job script of ``batch`` with ``count`` tasks."""
        folder = self.run.jobs(batch.owner) / batch.token
        return JobScript(
            flags=self._flags(batch, count),
            components=() if batch.is_finisher else self._components(batch),
            setup=self.compute.setup,
            command=[self.compute.python or sys.executable, "-u", "-m", "orchestrate.entry", str(folder), "0", batch.token],
        )

    def _flags(self, batch: JobBatch, count: int) -> dict[str, FlagValue]:
        flags = {**self._own_flags(batch, count), **self._pool_flags(self._first_pool), **self.compute.extra_args}
        flags |= self._first_pool.extra_args
        if not batch.is_finisher:
            return flags
        # Files are merged by one process; nobody's GPUs wait for it, and it has no use for a shard's memory.
        output = literal_path(self.run.logs(batch.owner)) + "/finisher-%j.log"
        kept = {name: value for name, value in flags.items() if name not in SHARD_FLAGS and not name.startswith("gpus")}
        return {
            **kept,
            "nodes": 1,
            "ntasks": 1,
            "mem": FINISHER_MEM,
            "output": output,
            "dependency": f"afterany:{':'.join(batch.after)}",
        }

    @property
    def _first_pool(self) -> NodePool:
        """The pool of the collector; all pools in one where Slurm can allocate them as one."""
        pools = list(self.compute.node_pools.values())
        if not pools:
            compute = self.compute
            return NodePool(partition=compute.partition, nodes=compute.nodes, gpus_per_node=compute.gpus_per_node)
        if is_heterogeneous(self.compute):
            return pools[0]
        return pools[0].model_copy(update={"nodes": sum(pool.nodes for pool in pools)})

    def _components(self, batch: JobBatch) -> list[dict[str, FlagValue]]:
        """The options of every further pool of a heterogeneous job; few of the first one's hold for others."""
        if not is_heterogeneous(self.compute):
            return []
        pools = list(self.compute.node_pools.values())[1:]
        return [
            {**self._shared_flags(batch), **self._pool_flags(pool), **self.compute.extra_args, **pool.extra_args}
            for pool in pools
        ]

    def _pool_flags(self, pool: NodePool) -> dict[str, FlagValue]:
        return {
            "partition": pool.partition,
            "nodes": pool.nodes,
            "ntasks": pool.nodes * pool.ntasks_per_node,
            "ntasks-per-node": pool.ntasks_per_node if pool.ntasks_per_node > 1 else None,
            "gpus-per-node": pool.gpus_per_node,
        }

    def _shared_flags(self, batch: JobBatch) -> dict[str, FlagValue]:
        compute = self.compute
        return {
            "job-name": batch.token,
            "account": compute.account,
            "qos": compute.qos,
            "time": slurm_time(walltime_seconds(compute.walltime)),
            "cpus-per-task": compute.cpus_per_task,
            "mem": compute.mem,
            "requeue": True,
        }

    def _own_flags(self, batch: JobBatch, count: int) -> dict[str, FlagValue]:
        compute, seconds = self.compute, walltime_seconds(self.compute.walltime)
        log = literal_path(self.run.logs(batch.owner)) + ("/job-%A_%a.log" if count > 1 else "/job-%j.log")
        at_once = f"%{compute.max_concurrent}" if compute.max_concurrent else ""
        return {
            **self._shared_flags(batch),
            "array": f"0-{count - 1}{at_once}" if count > 1 else None,
            "chdir": str(self.run.root),
            "output": log,
            # Both runs of a requeued job write to one log; truncating would lose what the first one said.
            "open-mode": "append",
            # B: to the batch shell, which exec has made the collector.
            "signal": f"B:USR2@{warning_seconds(seconds)}",
            # Variables that host: names reach the job in its environment, never in a file.
            "export": "ALL",
        }

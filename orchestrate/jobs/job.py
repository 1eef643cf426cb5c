"""What runs inside a job: take its shards, bring the services up, collect, take them down, and finish the benchmarks.

All truth is read from the run directory at each start, so a requeued job just starts again. The exit code is the truth too:
0 only when every rollout of the job's shards completed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import uvloop

from collector.errors import GymEvalError, IncompleteError, ServiceError
from collector.stop import StopReason
from orchestrate.config.pools import placements_of
from orchestrate.config.values import resolve_env, walltime_seconds
from orchestrate.jobs.context import JobContext, enter_directory
from orchestrate.jobs.ends import end_unfinished
from orchestrate.jobs.requeue import disjoint, read_job_runs, why_not_again
from orchestrate.jobs.shard_work import ShardWork
from orchestrate.jobs.stops import JobStops
from orchestrate.jobs.storage import storage_error
from orchestrate.jobs.timing import warning_seconds
from orchestrate.runs.directory import RunDir, read_plan
from orchestrate.runs.plan import SubmitPlan
from orchestrate.services.group import ServiceGroup, group_of
from orchestrate.services.tasks import end_all, error_of, unless_stopped

if TYPE_CHECKING:
    from exporters.tail import TailResult

#: Seconds for requests in flight after SIGTERM: Slurm's default KillWait is 30, many sites have less.
_TERM_MARGIN_S: Final = 3.0
#: Seconds before the time limit that stay for stopping services and going back to the queue.
_REQUEUE_MARGIN_S: Final = 20.0


def run_shard(run_dir: str, benchmark: str, index: str, *more: str) -> int:
    """Bring the shards of one job as far as they go: pairs of benchmark and index.

    Returns 0, or ends the process with the exit code of the first thing that is wrong.
    """
    named = [benchmark, index, *more]
    units = [(name, int(number)) for name, number in zip(named[::2], named[1::2], strict=True)]
    try:
        job = Job(RunDir(Path(run_dir)), units)
        uvloop.run(job.run())
        errors = [shard.error for shard in job.shards if shard.error is not None]
    except (GymEvalError, OSError) as error:
        told = error if isinstance(error, GymEvalError) else storage_error(error, f"{benchmark} shard {index}")
        if told is None:
            raise
        errors = [told]
    for error in errors:
        sys.stderr.write(f"gym eval: {error}\n")
    if errors:
        # Not an exception of submitit's: it would pickle the traceback and end with 1 whatever happened.
        raise SystemExit(errors[0].exit_code) from errors[0]
    return 0


class Job:
    """One incarnation of a job on its shards. What is wrong with one of them stands there and stops no other."""

    def __init__(self, run: RunDir, units: Sequence[tuple[str, int]]) -> None:
        self.run_dir = run
        self.plan: SubmitPlan = read_plan(run)
        self.context = JobContext.read()
        self.shards = [ShardWork(run, self.plan, name, index, self.context) for name, index in units]
        self.stops = JobStops(margin_s=_TERM_MARGIN_S)

    async def run(self) -> None:
        """Leave in each shard why it, or the benchmark when this job finishes it, is not complete."""
        enter_directory(self.plan.cwd)
        os.environ.update(resolve_env(self.plan.config.driver.env, os.environ, where="driver.env"))
        self._listen()
        async with AsyncExitStack() as stack:
            if not self.context.on_slurm and not await self._take_slot(stack):
                where = self.shards[0].where
                raise IncompleteError("was told to stop while it waited for a free slot.", where=where)
            await self._fill()
            await end_unfinished(self.shards, self._left(), self.stops, self.context)
        tails: dict[str, TailResult] = {}
        for shard in self.shards:
            shard.finish(tails)

    async def _fill(self) -> None:
        """Collect under the shards' locks; where all of them are final no services are started."""
        async with AsyncExitStack() as stack:
            for shard in self.shards:
                await shard.open(stack)
                if shard.is_final and not shard.needs_collector and len(self.shards) > 1:
                    # An earlier run of this job was cut off before it merged; at the end there may be no time for it again.
                    shard.publish_early()
            runs = disjoint([run for shard in self.shards for run in read_job_runs(shard.artifacts.journal)])
            for shard in self._to_collect():
                # Preemption and lost nodes are requeued by Slurm, which knows no bound.
                if (why := why_not_again(shard.requeue, runs, self.context.job_id, self.context.restarts)) is not None:
                    what = f"the job may not run again: {why}."
                    shard.error = IncompleteError(what, "Run the submit command again.", shard.where)
            if self._to_collect() and not self.stops.is_asked:
                await self._serve_and_collect()
            for shard in self.shards:
                shard.recount()

    def _to_collect(self) -> list[ShardWork]:
        return [shard for shard in self.shards if shard.error is None and shard.needs_collector]

    def _left(self) -> list[ShardWork]:
        return [shard for shard in self.shards if shard.error is None and not shard.is_final]

    async def _serve_and_collect(self) -> None:
        """Bring the services up and collect; again when one that worked has ended, as often as it may."""
        restarts = 0
        while True:
            services = group_of(
                self.plan.config.services,
                logs=self.run_dir.logs(self.shards[0].benchmark if len(self.shards) == 1 else None),
                job=f"{self.context.job_id.replace(':', '-')}",
                environ=os.environ,
                placements=placements_of(self.plan.config),
            )
            async with services:
                try:
                    if await self._ready(services):
                        await self._collect(services)
                except ServiceError as error:
                    if self.stops.reason is StopReason.TIME_LIMIT:
                        # The time is over either way: the next run of the job starts its services anew.
                        self._say(str(error))
                        return
                    if restarts >= services.restarts_allowed() or self.stops.reason not in {None, StopReason.SERVICE_DIED}:
                        self._blame(error)
                        return
                    self._say(str(error))
                else:
                    return
            # The request to stop was about the services that are gone; signals ask the new one.
            if not self.stops.begin_anew():
                return
            restarts += 1
            self._say(f"the services are started again (restart {restarts})")

    def _blame(self, error: ServiceError) -> None:
        for shard in self._to_collect():
            if not shard.recount():
                shard.error = error

    async def _ready(self, services: ServiceGroup) -> bool:
        from orchestrate.services.readiness import ModelProbe  # noqa: PLC0415 - loads libcurl

        self._say("waiting for the services")
        probe = ModelProbe(self.shards[0].settings(), self.plan.config.driver.policy_model)
        return await unless_stopped(_true(services.wait_ready(probe, self._say)), self.stops.master) is not None

    async def _collect(self, services: ServiceGroup) -> None:
        """Collect what is left, so many shards at once as the configuration says. Raises ServiceError when a service ends."""
        waiting = self._to_collect()
        count = min(self.plan.config.job.pack_at_once, len(waiting))
        workers = [asyncio.create_task(self._work_off(waiting, services)) for _ in range(count)]
        watch = asyncio.create_task(services.watch())
        together = asyncio.gather(*workers)
        try:
            await asyncio.wait({together, watch}, return_when=asyncio.FIRST_COMPLETED)
            died = error_of([watch, *workers])
            if died is not None and not isinstance(died, ServiceError):
                # A defect of ours says nothing about the services; what is recorded stays recorded.
                raise died
            if died is not None:
                self.stops.ask(StopReason.SERVICE_DIED, at_once=True)
            await asyncio.wait(workers)
        finally:
            # With the workers' errors read from itself too, asyncio does not log them as errors that nobody read.
            await end_all([watch, *workers, together])
        died = died or error_of(workers)
        # The last outcome may be recorded while the service that gave it ends.
        for shard in self._left():
            shard.recount()
        if died is not None and (self._left() or not isinstance(died, ServiceError)):
            raise died

    async def _work_off(self, waiting: list[ShardWork], services: ServiceGroup) -> None:
        while waiting and not self.stops.is_asked:
            await waiting.pop(0).collect(services, self.stops)

    def _listen(self) -> None:
        # After submitit's own handlers, which would ignore SIGTERM and take SIGUSR2 for a reason to pickle.
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._ask, StopReason.TERMINATED, _TERM_MARGIN_S)
        loop.add_signal_handler(signal.SIGINT, self._ask, StopReason.INTERRUPTED, _TERM_MARGIN_S)
        loop.add_signal_handler(signal.SIGUSR2, self._ask, StopReason.TIME_LIMIT, self._time_limit_margin_s())

    def _ask(self, reason: StopReason, margin_s: float) -> None:
        self._say(f"asked to stop ({reason}); requests in flight may finish within {margin_s:g} s")
        self.stops.signal(reason, margin_s=margin_s)

    def _time_limit_margin_s(self) -> float:
        compute = self.plan.config.the_compute
        if compute.type != "slurm":
            return _TERM_MARGIN_S
        return max(_TERM_MARGIN_S, warning_seconds(walltime_seconds(compute.walltime)) - _REQUEUE_MARGIN_S)

    async def _take_slot(self, stack: AsyncExitStack) -> bool:
        from orchestrate.jobs.slots import local_slot  # noqa: PLC0415 - needed on one machine only

        count = self.plan.config.the_compute.max_concurrent or 1
        slot = await unless_stopped(stack.enter_async_context(local_slot(self.run_dir, count)), self.stops.master)
        return slot is not None

    def _say(self, text: str) -> None:
        self.shards[0].say(text)


async def _true(work: Coroutine[Any, Any, None]) -> bool:
    await work
    return True

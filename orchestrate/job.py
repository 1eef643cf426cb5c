"""What runs inside a job: take the shard, bring the services up, collect, take them down, and finish the benchmark.

All truth is read from the run directory at each start, so a requeued job just starts again. The exit code is the truth too:
0 only when every rollout of the shard completed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack, ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from collector.coverage import Coverage
from collector.errors import GymEvalError, IncompleteError, LockHeldError, ServiceError, UnavailableError
from collector.lock import Holder, ShardLock, read_holder
from collector.settings import RunSettings
from collector.stop import StopReason, StopRequest
from orchestrate.config.load import api_key_reference, settings_of
from orchestrate.config.submit import Requeue
from orchestrate.config.values import resolve_env, walltime_seconds
from orchestrate.job_context import JobContext, enter_directory, job_is_over, unless_stopped
from orchestrate.outcome import check_experiment, check_outcome
from orchestrate.plan import BenchmarkPlan, SubmitPlan
from orchestrate.requeue import read_job_runs, requeue_job, why_not_again
from orchestrate.rundir import RunDir, read_plan
from orchestrate.scheduler import SlurmScheduler
from orchestrate.services import ServiceGroup, group_of

T = TypeVar("T")

#: Seconds for requests in flight after SIGTERM: Slurm's default KillWait is 30, many sites have less.
_TERM_MARGIN_S: Final = 3.0
#: Seconds before the time limit that stay for stopping services and going back to the queue.
_REQUEUE_MARGIN_S: Final = 20.0
#: Seconds to wait for a lock of this job's own earlier run; network file systems let go of a dead node's locks in that time.
_OWN_LOCK_WAIT_S: Final = 90.0


def run_shard(run_dir: str, benchmark: str, index: str) -> int:
    """Bring one shard as far as it goes. Returns 0, or ends the process with the exit code of what is wrong."""
    import uvloop  # noqa: PLC0415 - this module is imported by the submitting command too

    try:
        job = ShardJob(RunDir(Path(run_dir)), benchmark, int(index))
        uvloop.run(job.run())
    except GymEvalError as error:
        sys.stderr.write(f"gym eval: {error}\n")
        # Not an exception of submitit's: it would pickle the traceback and end with 1 whatever happened.
        raise SystemExit(error.exit_code) from error
    return 0


class ShardJob:
    """One incarnation of a job on its shard."""

    def __init__(self, run: RunDir, benchmark: str, index: int) -> None:
        self.run_dir = run
        self.plan: SubmitPlan = read_plan(run)
        self.benchmark: BenchmarkPlan = self.plan.benchmark(benchmark)
        self.artifacts = run.shard(self.benchmark, index)
        self.context = JobContext.read()
        self._stop = StopRequest(margin_s=_TERM_MARGIN_S)
        #: What the first signal asked for; unlike a request to stop, it outlives the services.
        self._signalled: StopReason | None = None
        self.where = f"{benchmark} shard {index} of {self.benchmark.shards}"

    async def run(self) -> None:
        """Raises GymEvalError for whatever keeps the shard, or the benchmark when this job finishes it, from completeness."""
        enter_directory(self.plan.cwd)
        os.environ.update(resolve_env(self.plan.config.driver.env, os.environ, where="driver.env"))
        self._listen()
        async with AsyncExitStack() as stack:
            if not self.context.on_slurm and not await self._take_slot(stack, self._stop):
                raise IncompleteError("was told to stop while it waited for a free slot.", where=self.where)
            try:
                coverage = await self._fill()
                self._say(f"{coverage.completed} of {coverage.expected} rollouts completed")
                if not coverage.is_final:
                    raise await self._unfinished(coverage)
            except LockHeldError:
                # The shard is somebody else's, and so is what becomes of it.
                raise
            except GymEvalError:
                try:
                    self._publish_what_is_there()
                except GymEvalError as error:
                    self._say(f"what there is was not published: {error}")
                raise
        self._finish(coverage)

    def _publish_what_is_there(self) -> None:
        """On one machine nothing follows the jobs of a benchmark; the last of them publishes what there is."""
        from orchestrate.job_finisher import finish_locally  # noqa: PLC0415 - needed on one machine only

        if not self.context.on_slurm:
            finish_locally(self.run_dir, self.plan, self.benchmark, say=self._say)

    def _listen(self) -> None:
        # After submitit's own handlers, which would ignore SIGTERM and take SIGUSR2 for a reason to pickle.
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._ask, StopReason.TERMINATED, _TERM_MARGIN_S)
        loop.add_signal_handler(signal.SIGINT, self._ask, StopReason.INTERRUPTED, _TERM_MARGIN_S)
        loop.add_signal_handler(signal.SIGUSR2, self._ask, StopReason.TIME_LIMIT, self._time_limit_margin_s())

    def _ask(self, reason: StopReason, margin_s: float) -> None:
        self._say(f"asked to stop ({reason}); requests in flight may finish within {margin_s:g} s")
        self._signalled = self._signalled or reason
        self._stop.margin_s = margin_s
        self._stop.ask(reason)

    def _time_limit_margin_s(self) -> float:
        compute = self.plan.config.the_compute
        if compute.type != "slurm":
            return _TERM_MARGIN_S
        from orchestrate.executors.slurm import warning_seconds  # noqa: PLC0415 - needed on Slurm only

        return max(_TERM_MARGIN_S, warning_seconds(walltime_seconds(compute.walltime)) - _REQUEUE_MARGIN_S)

    async def _take_slot(self, stack: AsyncExitStack, stop: StopRequest) -> bool:
        from orchestrate.executors.local import local_slot  # noqa: PLC0415 - needed on one machine only

        compute = self.plan.config.the_compute
        count = compute.max_concurrent or 1
        slot = await unless_stopped(stack.enter_async_context(local_slot(self.run_dir, count)), stop)
        return slot is not None

    async def _fill(self) -> Coverage:
        """Collect under the shard's lock; a shard that is final starts no services."""
        settings = self._settings()
        lock = ShardLock(self.artifacts.lock, job_id=self.context.job_id, since=_now(), is_gone=self._is_gone)
        with ExitStack() as stack:
            await self._lock(stack, lock)
            check_experiment(self.artifacts, settings, lock.check)
            if self._stop.is_asked or not self._needs_session(settings):
                return self._coverage(settings)
            # Preemption and lost nodes are requeued by Slurm, which knows no bound.
            if (why := self._why_not_again(self.context.restarts)) is not None:
                raise IncompleteError(f"the job may not run again: {why}.", "Run the submit command again.", self.where)
            await self._serve_and_collect(lock)
            return self._coverage(settings)

    async def _serve_and_collect(self, lock: ShardLock) -> None:
        """Bring the services up and collect; again when one that worked has ended, as often as it may."""
        restarts = 0
        while True:
            services = group_of(
                self.plan.config.services,
                logs=self.run_dir.logs(self.benchmark),
                job=f"{self.context.job_id.replace(':', '-')}",
                environ=os.environ,
            )
            async with services:
                try:
                    if await self._ready(services, self._stop):
                        await self._collect(services, lock, self._stop)
                except ServiceError as error:
                    if restarts >= services.restarts_allowed() or self._stop.reason not in {None, StopReason.SERVICE_DIED}:
                        raise
                    self._say(str(error))
                else:
                    return
            # The request to stop was about the services that are gone; signals ask the new one.
            self._stop = StopRequest(margin_s=_TERM_MARGIN_S)
            if self._signalled is not None:
                self._stop.ask(self._signalled)
                return
            restarts += 1
            self._say(f"the services are started again (restart {restarts})")

    async def _lock(self, stack: ExitStack, lock: ShardLock) -> None:
        """Take the shard's lock. An earlier run of this very job may hold it for a while: its node may have been lost."""
        deadline = time.monotonic() + _OWN_LOCK_WAIT_S
        while True:
            try:
                stack.enter_context(lock)
            except LockHeldError:
                holder = read_holder(lock.path)
                if holder is None or holder.job_id != self.context.job_id or time.monotonic() > deadline:
                    raise
            else:
                return
            await asyncio.sleep(1)

    def _is_gone(self, holder: Holder) -> bool:
        """Whether the scheduler knows that the job which holds the shard's lock has ended."""
        if not self.context.on_slurm or holder.job_id is None:
            return False
        if holder.job_id == self.context.job_id:
            # An earlier run of this very job: Slurm ends it before it starts the job again.
            return True
        return job_is_over(self.run_dir, holder.job_id, SlurmScheduler())

    async def _ready(self, services: ServiceGroup, stop: StopRequest) -> bool:
        from orchestrate.readiness import ModelProbe  # noqa: PLC0415 - loads libcurl

        self._say("waiting for the services")
        probe = ModelProbe(self._settings(), self.plan.config.driver.policy_model)
        return await unless_stopped(_true(services.wait_ready(probe)), stop) is not None

    async def _collect(self, services: ServiceGroup, lock: ShardLock, stop: StopRequest) -> None:
        from collector.collect import collect  # noqa: PLC0415 - loads the agents' transport
        from collector.session import JobFacts  # noqa: PLC0415 - as above
        from orchestrate.progress import LogProgress  # noqa: PLC0415 - as above

        policy = self.plan.config.driver.policy_model
        endpoint = services.endpoint(policy) if policy is not None else None
        urls = {name: found.base_url for name, found in services.endpoints().items()}
        settings = self._settings(endpoint.base_url if endpoint else None, endpoint.api_key if endpoint else None, urls)
        facts = JobFacts(self.context.job_id, self.context.restarts)
        self._say("collecting")
        work = asyncio.create_task(
            collect(settings, self.artifacts, lock, job=facts, stop=stop, progress=LogProgress(self._say))
        )
        watch = asyncio.create_task(services.watch())
        await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
        died = watch.exception() if watch.done() and not watch.cancelled() else None
        if died is not None and not isinstance(died, ServiceError):
            # A defect of the watch says nothing about the services; what is recorded stays recorded.
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            raise died
        if died is not None:
            stop.ask(StopReason.SERVICE_DIED, at_once=True)
        try:
            await work
        except UnavailableError as error:
            # A dead server is the better explanation of an endpoint that fails every request.
            services.check_alive()
            raise error from died
        finally:
            watch.cancel()
        # The last outcome may be recorded while the service that gave it ends.
        if died is not None and not self._coverage(settings).is_final:
            raise died

    def _settings(
        self, base_url: str | None = None, api_key: str | None = None, urls: Mapping[str, str] | None = None
    ) -> RunSettings:
        reference = api_key_reference(self.plan.config, self.benchmark.name)
        if reference is not None and api_key is None:
            api_key = resolve_env({"key": reference}, os.environ, where="policy_api_key")["key"]
        output = self.artifacts.rollouts
        return settings_of(self.plan.config, self.benchmark.name, output=output, base_url=base_url, api_key=api_key, urls=urls)

    def _coverage(self, settings: RunSettings) -> Coverage:
        from collector.store import RolloutStore  # noqa: PLC0415 - a job that waits for its slot stays small

        with RolloutStore.read(self.artifacts) as store:
            return store.coverage(settings.retry)

    def _needs_session(self, settings: RunSettings) -> bool:
        from collector.store import RolloutStore  # noqa: PLC0415 - a job that waits for its slot stays small

        with RolloutStore.read(self.artifacts) as store:
            return store.needs_session(settings.retry)

    def _why_not_again(self, restarts: int) -> str | None:
        requeue: Requeue = self.plan.config.driver.benchmarks[self.benchmark.name].requeue
        return why_not_again(requeue, read_job_runs(self.artifacts.journal), self.context.job_id, restarts)

    async def _unfinished(self, coverage: Coverage) -> IncompleteError:
        stop = self._stop
        left = f"{coverage.unfinished} of {coverage.expected} rollouts are unfinished"
        if stop.reason is not StopReason.TIME_LIMIT or not self.context.on_slurm:
            # Slurm requeues what it preempted by itself, and says nothing of it to the job.
            fix = "A preempted job comes back by itself; after anything else, run the submit command again."
            return IncompleteError(f"{left} ({stop.reason or 'stopped'}).", fix, self.where)
        if (why := self._why_not_again(self.context.restarts + 1)) is not None:
            return IncompleteError(
                f"{left}, and the job may not run again: {why}.", "Run the submit command again.", self.where
            )
        self._say(f"{left}; the time is over, going back to the queue (requeue {self.context.restarts + 1})")
        # Slurm ends this process when it requeues the job; nothing of ours runs any more by then.
        if not await asyncio.to_thread(requeue_job, self.context.job_id):
            return IncompleteError(f"{left}, and Slurm did not requeue the job.", "Run the submit command again.", self.where)
        return IncompleteError(f"{left}.", "The job was requeued.", self.where)

    def _finish(self, coverage: Coverage) -> None:
        """Merge, measure and export when this was the benchmark's last shard. GPUs are idle by now: services are down."""
        from merge.tail import MergeState  # noqa: PLC0415 - once, at the end
        from orchestrate.tail import check_exports, finish, lines_of  # noqa: PLC0415 - as above

        # Shards may have been added while this one was collected.
        benchmark = read_plan(self.run_dir).benchmark(self.benchmark.name)
        result = finish(self.run_dir, benchmark, self._settings())
        for line in lines_of(result, self.run_dir, benchmark):
            self._say(line)
        if result.state is MergeState.WAITING:
            self._publish_what_is_there()
        # The evaluation's own outcome is told rather than that of its exports, which the log tells too.
        check_outcome(coverage, self.where)
        check_exports(result, self.where)

    def _say(self, text: str) -> None:
        sys.stdout.write(f"{_now()} {self.where}: {text}\n")
        sys.stdout.flush()


async def _true(work: Coroutine[Any, Any, None]) -> bool:
    await work
    return True


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")

"""One shard in the hands of a job: its lock, what is left of it, its collector, and the end of its benchmark."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from collector.errors import GymEvalError, IncompleteError, LockHeldError, ServiceError, UnavailableError
from collector.settings import RunSettings
from collector.shard.lock import Holder, ShardLock, read_holder
from collector.state.coverage import Coverage
from collector.text.counted import agreeing, counted
from orchestrate.config.commands import placed
from orchestrate.config.load import api_key_reference, settings_of
from orchestrate.config.submit import Requeue
from orchestrate.config.values import resolve_env
from orchestrate.jobs.context import JobContext, job_is_over
from orchestrate.jobs.stops import JobStops
from orchestrate.jobs.storage import storage_error
from orchestrate.outcome import check_experiment, check_outcome
from orchestrate.runs.directory import RunDir, read_plan
from orchestrate.runs.plan import BenchmarkPlan, SubmitPlan
from orchestrate.runs.submissions import has_live_finisher, latest_finisher, questions, read_submissions
from orchestrate.scheduler import SlurmScheduler
from orchestrate.services.group import ServiceGroup

if TYPE_CHECKING:
    from exporters.tail import TailResult

#: Seconds to wait for a lock of this job's own earlier run; network file systems let go of a dead node's locks in that time.
_OWN_LOCK_WAIT_S: Final = 90.0


class ShardWork:
    """One shard of a job. ``error`` is why it, or its benchmark when this job ends it, is not complete."""

    def __init__(self, run: RunDir, plan: SubmitPlan, benchmark: str, index: int, context: JobContext) -> None:
        self.run_dir = run
        self.plan = plan
        self.benchmark: BenchmarkPlan = plan.benchmark(benchmark)
        self.artifacts = run.shard(self.benchmark, index)
        self.where = f"{benchmark} shard {index} of {self.benchmark.shards}"
        self.coverage: Coverage | None = None
        #: Whether a collector would find something to do: a final shard may have results to make failures first.
        self.needs_collector = False
        self.error: GymEvalError | None = None
        self._context = context
        self._lock = ShardLock(self.artifacts.lock, job_id=context.job_id, since=_now(), is_gone=self._is_gone)

    @property
    def requeue(self) -> Requeue:
        """How often the job may run again for this shard."""
        return self.plan.config.driver.benchmarks[self.benchmark.name].requeue

    @property
    def is_final(self) -> bool:
        """Whether nothing of it may be dispatched any more, by what was counted last."""
        return self.coverage is not None and self.coverage.is_final

    @property
    def left_in_words(self) -> str:
        """``3 of 100 rollouts are unfinished``."""
        coverage = self.coverage
        if coverage is None:
            raise AssertionError("a shard that was opened has been counted")
        unfinished = counted(coverage.unfinished, "rollout", of=coverage.expected)
        return f"{unfinished} {agreeing(coverage.unfinished, 'are')} unfinished"

    async def open(self, stack: AsyncExitStack) -> None:
        """Take the shard's lock for as long as ``stack`` lasts, check its experiment and count it; else say why not."""
        try:
            await self._take_lock(stack)
            # It may ask a head server and read a whole inventory: signals and services are heeded meanwhile.
            await asyncio.to_thread(check_experiment, self.artifacts, self.settings(), self._lock.check)
            self._count()
        except GymEvalError as error:
            self.error = error
        except OSError as error:
            if (told := storage_error(error, self.where)) is None:
                raise
            self.error = told

    def recount(self) -> bool:
        """Count again, and return whether the shard is final."""
        if self.error is None:
            self._count()
        return self.is_final

    async def collect(self, services: ServiceGroup, stops: JobStops) -> None:
        """Collect until nothing is left, something is wrong, or the job is asked to stop. Raises ServiceError."""
        from collector.collect import collect  # noqa: PLC0415 - loads the agents' transport
        from collector.session import JobFacts  # noqa: PLC0415 - as above
        from orchestrate.jobs.progress import LogProgress  # noqa: PLC0415 - as above

        policy = self.plan.config.driver.policy_model
        endpoint = services.endpoint(policy) if policy is not None else None
        urls = {name: found.base_url for name, found in services.endpoints().items()}
        settings = self.settings(endpoint.base_url if endpoint else None, endpoint.api_key if endpoint else None, urls)
        directory, job = self.run_dir.benchmark(self.benchmark), self._context.job_id.replace(":", "-")
        settings = placed(settings, self.plan.config.driver, directory=directory, job=job)
        facts = JobFacts(self._context.job_id, self._context.restarts)
        self.say("collecting")
        with stops.collector() as stop:
            try:
                await collect(settings, self.artifacts, self._lock, job=facts, stop=stop, progress=LogProgress(self.say))
            except UnavailableError as error:
                # A dead server is the better explanation of an endpoint that fails every request.
                try:
                    services.check_alive()
                except ServiceError as died:
                    raise died from error
                self.error = error
            except GymEvalError as error:
                self.error = error

    def leave_unfinished(self, why: str, fix: str) -> None:
        """The shard's error is that rollouts are unfinished."""
        self.error = IncompleteError(f"{self.left_in_words}{why}", fix, self.where)

    def publish_early(self) -> None:
        """Merge and export the benchmark if its shards are all final; ``finish`` finds it done, and tells what is wrong."""
        from orchestrate.jobs.tail import finish  # noqa: PLC0415 - loads merge and exporters

        with suppress(GymEvalError, OSError):
            finish(self.run_dir, self.benchmark, self.settings(), with_exports=not self._leaves_exports())

    def finish(self, tails: dict[str, TailResult]) -> None:
        """Merge, measure and export when this was the benchmark's last shard; what is wrong then is the shard's error.

        Called when the job has nothing else to do. ``tails`` are the benchmarks that another shard of the job ended already.
        """
        try:
            self._end(tails)
        except GymEvalError as error:
            self._blame_end(error)
        except OSError as error:
            if (told := storage_error(error, self.where)) is None:
                raise
            self._blame_end(told)

    def settings(
        self, base_url: str | None = None, api_key: str | None = None, urls: Mapping[str, str] | None = None
    ) -> RunSettings:
        """The shard's settings, with where the job's services answer."""
        reference = api_key_reference(self.plan.config, self.benchmark.name)
        if reference is not None and api_key is None:
            api_key = resolve_env({"key": reference}, os.environ, where="policy_api_key")["key"]
        output = self.artifacts.rollouts
        return settings_of(self.plan.config, self.benchmark.name, output=output, base_url=base_url, api_key=api_key, urls=urls)

    def say(self, text: str) -> None:
        """A line in the job's log."""
        sys.stdout.write(f"{_now()} {self.where}: {text}\n")
        sys.stdout.flush()

    async def _take_lock(self, stack: AsyncExitStack) -> None:
        """Raises LockHeldError. An earlier run of this very job may hold it for a while: its node may have been lost."""
        deadline = time.monotonic() + _OWN_LOCK_WAIT_S
        while True:
            try:
                stack.enter_context(self._lock)
            except LockHeldError:
                holder = read_holder(self._lock.path)
                if holder is None or holder.job_id != self._context.job_id or time.monotonic() > deadline:
                    raise
            else:
                return
            await asyncio.sleep(1)

    def _is_gone(self, holder: Holder) -> bool:
        """Whether the scheduler knows that the job which holds the shard's lock has ended."""
        if not self._context.on_slurm or holder.job_id is None:
            return False
        if holder.job_id == self._context.job_id:
            # An earlier run of this very job: Slurm ends it before it starts the job again.
            return True
        return job_is_over(self.run_dir, holder.job_id, SlurmScheduler())

    def _count(self) -> None:
        from collector.shard.store import RolloutStore  # noqa: PLC0415 - a job that waits for its slot stays small

        retry = self.settings().retry
        with RolloutStore.read(self.artifacts) as store:
            self.coverage = store.coverage(retry)
            self.needs_collector = store.needs_session(retry)

    def _end(self, tails: dict[str, TailResult]) -> None:
        if self.error is None and self.coverage is not None:
            self._finish(self.coverage, tails)
        elif not isinstance(self.error, LockHeldError):
            # A shard that is somebody else's is, with what becomes of it.
            self._publish_what_is_there()

    def _blame_end(self, error: GymEvalError) -> None:
        if self.error is None:
            self.error = error
        else:
            self.say(f"what there is was not published: {error}")

    def _finish(self, coverage: Coverage, tails: dict[str, TailResult]) -> None:
        from merge.tail import MergeState  # noqa: PLC0415 - once, at the end
        from orchestrate.jobs.tail import check_exports, finish, lines_of  # noqa: PLC0415 - as above

        self.say(f"{counted(coverage.completed, 'rollout', of=coverage.expected)} completed")
        name = self.benchmark.name
        if name not in tails:
            # Shards may have been added while this one was collected.
            benchmark = read_plan(self.run_dir).benchmark(name)
            is_left = self._leaves_exports()
            tails[name] = finish(self.run_dir, benchmark, self.settings(), with_exports=not is_left)
            for line in lines_of(tails[name], self.run_dir, benchmark):
                self.say(line)
            if is_left and benchmark.export and tails[name].state is not MergeState.WAITING:
                self.say("the exports are left to the finisher, which holds no GPU")
        result = tails[name]
        if result.state is MergeState.WAITING:
            self._publish_what_is_there()
        # The evaluation's own outcome is told rather than that of its exports, which the log tells too.
        check_outcome(coverage, self.where)
        check_exports(result, self.where)

    def _leaves_exports(self) -> bool:
        """Whether the job that follows this one exports: a slow upload would keep GPUs, idle since the services are down."""
        if not self._context.holds_gpus:
            return False
        submissions = read_submissions(self.run_dir.submissions)
        finisher = latest_finisher(submissions, self.benchmark.name)
        facts = SlurmScheduler().ask(questions([finisher])) if finisher is not None else {}
        return has_live_finisher(submissions, self.benchmark.name, facts)

    def _publish_what_is_there(self) -> None:
        """On one machine nothing follows the jobs of a benchmark; the last of them publishes what there is."""
        from orchestrate.jobs.finisher import finish_locally  # noqa: PLC0415 - needed on one machine only

        if not self._context.on_slurm:
            finish_locally(self.run_dir, self.plan, self.benchmark, say=self.say)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")

"""The loop that fills a shard: take the lock, open a session, keep so many attempts in flight, end."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Protocol

from collector import durable, jsonl
from collector.agents.base import Agent, AgentSettings
from collector.artifacts import RunArtifacts
from collector.attempt import run_attempt
from collector.breaker import CircuitBreaker
from collector.budget import DispatchBudget
from collector.coverage import Coverage
from collector.errors import UnavailableError
from collector.lock import ShardLock
from collector.outcomes import Completed, Failure
from collector.prepare import make_agent, make_verifier
from collector.queue import DispatchQueue
from collector.record import Attempt, record
from collector.retry import longest_first, may_dispatch, pending
from collector.session import JobFacts, ShardSession
from collector.settings import RunSettings
from collector.stop import StopReason, StopRequest
from collector.verifiers.base import Verifier, VerifierSettings


class Progress(Protocol):
    """Told what happens, in the collector's event loop; must return at once."""

    def started(self, session: ShardSession) -> None:
        """A session was opened; its store says what is recorded already."""

    def changed(self) -> None:
        """An outcome was recorded."""


@dataclass(frozen=True, slots=True)
class CollectResult:
    """How a session ended: what the shard holds now, and why it stopped early if it did."""

    coverage: Coverage
    stopped: StopReason | None


async def collect(
    settings: RunSettings,
    artifacts: RunArtifacts,
    lock: ShardLock,
    *,
    job: JobFacts,
    stop: StopRequest,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> CollectResult:
    """Fill the prepared shard at ``artifacts`` under ``lock``, which the caller holds, until it is final or told to stop.

    Raises CorruptArtifactError before any write, FencedError when the shard is lost, UnavailableError when the endpoint
    fails every request alike. Whatever was recorded before stays recorded.
    """
    is_synced = settings.durability == "fsync"
    session = ShardSession.open(artifacts, lock, job, is_synced=is_synced)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(session.abandon)
        agent = await stack.enter_async_context(make_agent(settings))
        verifier = await stack.enter_async_context(make_verifier(settings))
        if progress is not None:
            progress.started(session)
        loop = _Loop(settings, session, agent, verifier, stop=stop, progress=progress, clock=clock)
        await loop.run()
        coverage = session.store.coverage(settings.retry)
        stopped = stop.reason or (StopReason.DISPATCH_BUDGET if loop.is_drained else None)
        await session.end(stopped or "final")
        durable.publish(artifacts.coverage, coverage.encode())
    if loop.breaker.verdict is not None:
        where = settings.policy_base_url or ""
        raise UnavailableError(loop.breaker.verdict, "Mend the endpoint, then resume: what is done is kept.", where)
    return CollectResult(coverage, stopped)


class _Loop:
    """Workers, one for each request in flight; a slot is taken before a dispatch is journalled, so waiting costs nothing."""

    def __init__(
        self,
        settings: RunSettings,
        session: ShardSession,
        agent: Agent[AgentSettings],
        verifier: Verifier[VerifierSettings],
        *,
        stop: StopRequest,
        progress: Progress | None,
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._session = session
        self._agent = agent
        self._verifier = verifier
        self._stop = stop
        self._progress = progress
        self._clock = clock
        self._store = session.store
        self._parallel = settings.num_samples_in_parallel
        self.breaker = CircuitBreaker(self._parallel)
        self._queue = DispatchQueue(self._order(), clock)
        self._budget = DispatchBudget(settings.dispatch_budget_s, settings.drain_margin_s, clock)
        #: Whether the time budget ended dispatching while there was work left.
        self.is_drained = False
        self._in_flight = 0
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Return when nothing is left to dispatch and nothing is in flight, or when in-flight work was given up."""
        workers = [asyncio.create_task(self._work()) for _ in range(min(self._parallel, len(self._queue)))]
        if not workers:
            return
        give_up = asyncio.create_task(self._give_up(workers))
        try:
            await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            give_up.cancel()
            for worker in workers:
                worker.cancel()
            results = await asyncio.gather(*workers, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
                raise result

    async def _give_up(self, workers: list[asyncio.Task[None]]) -> None:
        await self._stop.at_once()
        for worker in workers:
            worker.cancel()

    def _order(self) -> list[int]:
        history = self._store.history
        indices = pending(history, self._settings.retry)
        return longest_first(indices, history) if self._settings.dispatch_longest_first else indices

    async def _work(self) -> None:
        while not self._stop.is_asked:
            if self._budget.is_spent() and len(self._queue):
                self.is_drained = True
                return
            index = self._queue.take()
            if index is not None:
                self._in_flight += 1
                try:
                    await self._attempt(index)
                finally:
                    self._in_flight -= 1
                    self._changed.set()
            elif not await self._wait():
                return

    async def _wait(self) -> bool:
        """Wait for a paused rollout's time, or for one in flight that may come back. False when neither can happen."""
        pause = self._queue.wait_s()
        if pause is None and not self._in_flight:
            return False
        self._changed.clear()
        stopped = asyncio.ensure_future(self._stop.asked())
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait([stopped, changed], timeout=pause, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            changed.cancel()
        return True

    async def _attempt(self, index: int) -> None:
        source = self._store.inventory.line(index)
        attempt = Attempt(
            index=index,
            number=self._store.history.past(index).dispatched,
            rollout_id=self._store.inventory.rollout_id(index),
            run_id=self._session.run_id,
            session=self._session.number,
            source=source,
            row=jsonl.loads(source),
        )
        await self._session.dispatch(index, attempt.number)
        begun = self._clock()
        outcome = await run_attempt(attempt.row, self._agent, self._verifier)
        elapsed_s = self._clock() - begun
        self._budget.learn(elapsed_s)
        recorded = record(attempt, outcome, elapsed_s)
        await self._session.settle(index, recorded.draft, recorded.line)
        if self._progress is not None:
            self._progress.changed()
        self._after(index, outcome)

    def _after(self, index: int, outcome: Completed | Failure) -> None:
        self.breaker.see(outcome)
        if self.breaker.verdict is not None:
            self._stop.ask(StopReason.ENDPOINT_BROKEN)
        past = self._store.history.past(index)
        if isinstance(outcome, Failure) and may_dispatch(past, self._settings.retry):
            self._queue.put_back(index, _pause_s(outcome, past.recorded, self._settings))
            self._changed.set()


def _pause_s(failure: Failure, failures: int, settings: RunSettings) -> float:
    """Exponential from the first failure on, never shorter than the other side asked for, never longer than configured."""
    retry = settings.retry
    pause = retry.backoff_s * math.pow(2, max(0, failures - 1))
    return min(max(pause, failure.retry_after_s or 0.0), retry.backoff_max_s)

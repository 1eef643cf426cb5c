"""Keeps so many attempts in flight as are allowed, for as long as something is left to do and nobody asks to stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from collector import jsonl
from collector.agents.base import Agent, AgentSettings
from collector.formats import rows
from collector.formats.record import Attempt, record
from collector.loop.attempt import run_attempt
from collector.loop.upcoming import Upcoming
from collector.outcomes import Completed, Failure, Omitted
from collector.session import ShardSession
from collector.settings import RunSettings
from collector.stop import TAKES_THE_SERVER, StopRequest
from collector.verifiers.base import Verifier, VerifierSettings
from collector.verifiers.judge_saved import JUDGE_TOKENS, tokens_of

_log = logging.getLogger(__name__)

#: Seconds that a lost connection waits for news of a stop: a signal is handled within milliseconds, and services are looked
#: at five times a second.
_STOP_NOTICE_S = 0.5


class _Ready(NamedTuple):
    """An attempt that may leave as soon as it is journalled, and the row that the agent is asked."""

    attempt: Attempt
    asked: dict[str, Any]


class Dispatcher:
    """Workers, one for each attempt in flight, that take the next rollout when they are done and end when none is ready.

    A slot is taken before a dispatch is journalled, so waiting for one costs nothing. A worker that has an outcome records it
    together with its next dispatch: one wait for the disk a rollout. Nothing polls: a timer starts a worker when a paused
    rollout's time has come.
    """

    def __init__(
        self,
        settings: RunSettings,
        session: ShardSession,
        agent: Agent[AgentSettings],
        verifier: Verifier[VerifierSettings],
        *,
        stop: StopRequest,
        told: Callable[[], None],
        clock: Callable[[], float],
        only: Callable[[int], bool] | None = None,
    ) -> None:
        self._most = settings.num_samples_in_parallel
        self._limit_s = settings.timeouts.attempt_s
        self._session = session
        self._agent = agent
        self._verifier = verifier
        self._stop = stop
        self._told = told
        self._clock = clock
        self._store = session.store
        self.upcoming = Upcoming(settings, session.store, stop=stop, clock=clock, only=only)
        # Longest first was the last to ask for what is known of rows; from here on memory does not grow with them.
        self._store.history.forget_rows()
        self._store.inventory.forget_keys()
        self._workers: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._over = asyncio.Event()
        self._error: BaseException | None = None

    async def run(self) -> None:
        """Return when nothing is left to dispatch and nothing is in flight, or when in-flight work was given up."""
        watching = [asyncio.create_task(self._watch_stop()), asyncio.create_task(self._watch_give_up())]
        try:
            self._fill()
            await self._over.wait()
        finally:
            self._disarm()
            left = [*watching, *self._workers]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        if self._error is not None:
            raise self._error

    def _fill(self) -> None:
        """Start workers while slots are free and rollouts ready; see to it that this is called again when one becomes so."""
        while len(self._workers) < self._most and (index := self.upcoming.take()) is not None:
            worker = asyncio.create_task(self._work(index))
            self._workers.add(worker)
            worker.add_done_callback(self._end_worker)
        if len(self._workers) < self._most:
            self._arm()
        if not self._workers and self._timer is None:
            self.upcoming.conclude()
            self._over.set()

    def _arm(self) -> None:
        self._disarm()
        wait_s = self.upcoming.wait_s()
        if wait_s is not None:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._fill()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _watch_stop(self) -> None:
        await self._stop.asked()
        try:
            self._agent.wind_down()
        except Exception:  # noqa: BLE001 - a plug-in's bug must not keep the session from ending
            _log.exception("the agent raised when it was told of the stop")
        self._fill()

    async def _watch_give_up(self) -> None:
        await self._stop.at_once()
        for worker in self._workers:
            worker.cancel()

    def _end_worker(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        error = None if worker.cancelled() else worker.exception()
        if error is not None:
            self._error = self._error or error
            self._over.set()
        elif not self._over.is_set():
            self._fill()

    async def _work(self, index: int) -> None:
        ready = await self._begin(index)
        while ready is not None:
            ready = await self._attempt(ready)

    async def _begin(self, index: int | None) -> _Ready | None:
        """Journal the next attempt of rollout ``index``; None for none."""
        if index is None:
            return None
        ready = self._ready(index)
        await self._session.dispatch(index, ready.attempt.number, rollout_id=ready.attempt.rollout_id)
        return ready

    def _ready(self, index: int) -> _Ready:
        source = self._store.inventory.line(index)
        row = jsonl.loads(source)
        attempt = Attempt(
            index=index,
            number=self._store.history.latest[index] + 1,
            rollout_id=rows.rollout_id_of(row),
            run_id=self._session.run_id,
            session=self._session.number,
            source=source,
            row=row,
        )
        if not attempt.number:
            return _Ready(attempt, row)
        asked = {**row, rows.ATTEMPT_INDEX: attempt.number}
        if self._session.may_reuse(index):
            # Asked of this attempt only: what is recorded of it must not carry the permission on to the next.
            asked[rows.REUSE] = True
        return _Ready(attempt, asked)

    async def _attempt(self, ready: _Ready) -> _Ready | None:
        """Make the attempt and record what became of it; the attempt that this worker makes next, journalled with it."""
        attempt = ready.attempt
        begun = self._clock()
        outcome = await run_attempt(ready.asked, self._agent, self._verifier, limit_s=self._limit_s)
        if isinstance(outcome, Failure) and await self._was_cut_off(outcome):
            # Left open in the journal: an interruption of this attempt, not a failure of its task.
            return await self._begin(self.upcoming.take())
        elapsed_s = self._clock() - begun
        recorded = record(attempt, outcome, elapsed_s)
        if isinstance(outcome, Failure):
            # What is recorded of it decides whether it is tried again, and perhaps that nothing is dispatched any more.
            await self._session.settle(attempt.index, recorded.draft, recorded.line)
            self._see(attempt.index, outcome, elapsed_s)
            self._told()
            return await self._begin(self.upcoming.take())
        self._see(attempt.index, outcome, elapsed_s)
        following: _Ready | None = None
        try:
            index = self.upcoming.take()
            following = None if index is None else self._ready(index)
        finally:
            # An answer is recorded even when the next row cannot be read.
            next_one = None if following is None else following.attempt
            await self._session.settle(attempt.index, recorded.draft, recorded.line, following=next_one)
        self._told()
        return following

    async def _was_cut_off(self, failure: Failure) -> bool:
        """Whether the stop that ends this session took the server away, and with it this attempt.

        A preempted job's server gets the same signal as its collector, and its connections may close first.
        """
        if failure.is_lost_connection:
            await self._stop.asked_within(_STOP_NOTICE_S)
        elif not (failure.is_server_error or failure.is_cut_off):
            return False
        return self._stop.is_asked and self._stop.reason in TAKES_THE_SERVER

    def _see(self, index: int, outcome: Completed | Failure | Omitted, elapsed_s: float) -> None:
        self._count_judge(outcome)
        if self.upcoming.see(index, outcome, elapsed_s):
            self._fill()

    def _count_judge(self, outcome: Completed | Failure | Omitted) -> None:
        if not isinstance(outcome, Omitted):
            extra = outcome.extra if isinstance(outcome, Failure) else outcome.verdict.extra
            if extra.keys().isdisjoint(JUDGE_TOKENS):
                return
            for way, count in enumerate(tokens_of(extra)):
                self._session.judge_tokens[way] += count or 0

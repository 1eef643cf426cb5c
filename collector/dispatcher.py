"""Keeps so many attempts in flight as are allowed, for as long as something is left to do and nobody asks to stop."""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import Callable, Sequence

from collector import jsonl, rows
from collector.agents.base import Agent, AgentSettings
from collector.attempt import run_attempt
from collector.breaker import CircuitBreaker
from collector.budget import DispatchBudget
from collector.outcomes import Completed, Failure, Omitted
from collector.queue import DispatchQueue
from collector.record import Attempt, record
from collector.retry import attempts_left, longest_first, may_dispatch, pause_s, pending
from collector.session import ShardSession
from collector.settings import RunSettings
from collector.stop import TAKES_THE_SERVER, StopReason, StopRequest
from collector.verifiers.base import Verifier, VerifierSettings
from collector.verifiers.judge_saved import tokens_of

_log = logging.getLogger(__name__)

#: Seconds that a lost connection waits for news of a stop: a signal is handled within milliseconds, and services are looked
#: at five times a second.
_STOP_NOTICE_S = 0.5


class Dispatcher:
    """Workers, one for each attempt in flight, that take the next rollout when they are done and end when none is ready.

    A slot is taken before a dispatch is journalled, so waiting for one costs nothing. Nothing polls: a timer starts a worker
    when a paused rollout's time has come.
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
        self._settings = settings
        self._session = session
        self._agent = agent
        self._verifier = verifier
        self._stop = stop
        self._told = told
        self._clock = clock
        self._only = only
        self._store = session.store
        self._budget = DispatchBudget(settings.dispatch_budget_s, settings.drain_margin_s, clock)
        self._queue = DispatchQueue(self._order(), clock)
        # Longest first was the last to ask for what is known of rows; from here on memory does not grow with them.
        self._store.history.forget_rows()
        self._store.inventory.forget_keys()
        #: Rollouts that wait for the endpoint to answer somebody.
        self._held: list[int] = []
        self._workers: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._over = asyncio.Event()
        self._error: BaseException | None = None
        self.breaker = CircuitBreaker(settings.num_samples_in_parallel)
        #: Whether the time budget ended dispatching while there was work left.
        self.is_drained = False

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

    def _order(self) -> Sequence[int]:
        history = self._store.history
        indices = pending(history, self._settings.retry)
        if self._only is not None:
            inventory = self._store.inventory
            indices = array("i", (i for i in indices if self._only(inventory.task(i) << 32 | inventory.repeat(i))))
        if self._settings.interleave_repeats:
            # Stable: each round keeps the order of the tasks.
            indices = array("i", sorted(indices, key=self._store.inventory.repeat))
        return longest_first(indices, history) if self._settings.dispatch_longest_first else indices

    def _fill(self) -> None:
        """Start workers while slots are free and rollouts ready; see to it that this is called again when one becomes so."""
        while len(self._workers) < self._settings.num_samples_in_parallel and (index := self._next()) is not None:
            worker = asyncio.create_task(self._work(index))
            self._workers.add(worker)
            worker.add_done_callback(self._end_worker)
        if len(self._workers) < self._settings.num_samples_in_parallel:
            self._arm()
        if not self._workers and self._timer is None:
            self._conclude()

    def _next(self) -> int | None:
        """The rollout to dispatch now; None when none may be. Rollouts that have to wait for an answer are set aside."""
        while self._may_dispatch():
            index = self._queue.take()
            if index is None or not self._must_wait(index):
                return index
            self._held.append(index)
        return None

    def _may_dispatch(self) -> bool:
        if self._stop.is_asked or self.is_drained:
            return False
        self.is_drained = bool(self._budget.is_spent() and (len(self._queue) or self._held))
        return not self.is_drained

    def _must_wait(self, index: int) -> bool:
        if not self.breaker.is_suspicious:
            return False
        return self.breaker.must_wait(attempts_left(self._store.history.past(index), self._settings.retry))

    def _arm(self) -> None:
        self._disarm()
        wait_s = self._queue.wait_s() if self._may_dispatch() else None
        if wait_s is not None:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._fill()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _conclude(self) -> None:
        if self._held and not self._stop.is_asked and not self.is_drained:
            self._break()
        self._over.set()

    def _break(self) -> None:
        self.breaker.trip()
        # Asked a second time, a stop would give up what is in flight.
        if not self._stop.is_asked:
            self._stop.ask(StopReason.ENDPOINT_BROKEN)

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
        following: int | None = index
        while following is not None:
            await self._attempt(following)
            following = self._next()

    async def _attempt(self, index: int) -> None:
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
        if attempt.number:
            row = {**row, rows.ATTEMPT_INDEX: attempt.number}
            if self._session.may_reuse(index):
                # Asked of this attempt only: what is recorded of it must not carry the permission on to the next.
                row[rows.REUSE] = True
        await self._session.dispatch(index, attempt.number, rollout_id=attempt.rollout_id)
        begun = self._clock()
        outcome = await run_attempt(row, self._agent, self._verifier, limit_s=self._settings.timeouts.attempt_s)
        if isinstance(outcome, Failure) and await self._was_cut_off(outcome):
            # Left open in the journal: an interruption of this attempt, not a failure of its task.
            return
        elapsed_s = self._clock() - begun
        self._budget.learn(elapsed_s)
        recorded = record(attempt, outcome, elapsed_s)
        await self._session.settle(index, recorded.draft, recorded.line)
        self._count_judge(outcome)
        self._told()
        self._after(index, outcome)

    async def _was_cut_off(self, failure: Failure) -> bool:
        """Whether the stop that ends this session took the server away, and with it this attempt.

        A preempted job's server gets the same signal as its collector, and its connections may close first.
        """
        if failure.is_lost_connection:
            await self._stop.asked_within(_STOP_NOTICE_S)
        elif not (failure.is_server_error or failure.is_cut_off):
            return False
        return self._stop.is_asked and self._stop.reason in TAKES_THE_SERVER

    def _count_judge(self, outcome: Completed | Failure | Omitted) -> None:
        if not isinstance(outcome, Omitted):
            extra = outcome.extra if isinstance(outcome, Failure) else outcome.verdict.extra
            for way, count in enumerate(tokens_of(extra)):
                self._session.judge_tokens[way] += count or 0

    def _after(self, index: int, outcome: Completed | Failure | Omitted) -> None:
        self.breaker.see(outcome, index)
        if self.breaker.verdict is not None:
            self._break()
        if isinstance(outcome, Failure):
            self._queue_again(index, outcome)
        if self._held and not self._must_wait(self._held[0]):
            self._release()

    def _queue_again(self, index: int, failure: Failure) -> None:
        past = self._store.history.past(index)
        if may_dispatch(past, self._settings.retry):
            self._queue.put_back(index, pause_s(self._settings.retry, failures=past.recorded, asked_s=failure.retry_after_s))

    def _release(self) -> None:
        held, self._held = self._held, []
        for index in held:
            self._queue.put_back(index, 0.0)
        self._fill()

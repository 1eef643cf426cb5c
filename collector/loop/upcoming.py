"""Which rollout is dispatched next: in what order, after which pause, and never when it has to wait for an answer."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

from collector.loop.breaker import CircuitBreaker
from collector.loop.budget import DispatchBudget
from collector.loop.queue import DispatchQueue
from collector.outcomes import Completed, Failure, Omitted
from collector.settings import RunSettings
from collector.shard.store import RolloutStore
from collector.state.retry import attempts_left, longest_first, may_dispatch, pause_s, pending
from collector.stop import StopReason, StopRequest


class Upcoming:
    """The rollouts of one session that are still to be dispatched. ``only`` says of a rollout's key whether it may be."""

    def __init__(
        self,
        settings: RunSettings,
        store: RolloutStore,
        *,
        stop: StopRequest,
        clock: Callable[[], float],
        only: Callable[[int], bool] | None = None,
    ) -> None:
        self._settings = settings
        self._store = store
        self._stop = stop
        self._budget = DispatchBudget(settings.dispatch_budget_s, settings.drain_margin_s, clock)
        self._queue = DispatchQueue(self._order(only), clock)
        #: Rollouts that wait for the endpoint to answer somebody.
        self._held: list[int] = []
        self.breaker = CircuitBreaker(settings.num_samples_in_parallel)
        #: Whether the time budget ended dispatching while there was work left.
        self.is_drained = False

    def take(self) -> int | None:
        """The rollout to dispatch now; None when none may be. Rollouts that have to wait for an answer are set aside."""
        while self._may_dispatch():
            index = self._queue.take()
            if index is None or not self._must_wait(index):
                return index
            self._held.append(index)
        return None

    def wait_s(self) -> float | None:
        """Seconds until ``take`` may have one; None when that does not depend on time."""
        return self._queue.wait_s() if self._may_dispatch() else None

    def see(self, index: int, outcome: Completed | Failure | Omitted, elapsed_s: float) -> bool:
        """Take an outcome into account; whether others may be dispatched because of it. A failure has to be recorded by now."""
        self._budget.learn(elapsed_s)
        self.breaker.see(outcome, index)
        if self.breaker.verdict is not None:
            self._break()
        if isinstance(outcome, Failure):
            self._queue_again(index, outcome)
        if not self._held or self._must_wait(self._held[0]):
            return False
        held, self._held = self._held, []
        for waiting in held:
            self._queue.put_back(waiting, 0.0)
        return True

    def conclude(self) -> None:
        """Nothing is in flight and nothing ready: rollouts that still wait for an answer wait in vain."""
        if self._held and not self._stop.is_asked and not self.is_drained:
            self._break()

    def _order(self, only: Callable[[int], bool] | None) -> Sequence[int]:
        history, inventory = self._store.history, self._store.inventory
        indices = pending(history, self._settings.retry)
        if only is not None:
            indices = array("i", (i for i in indices if only(inventory.key(i))))
        if self._settings.interleave_repeats:
            # Stable: each round keeps the order of the tasks.
            indices = array("i", sorted(indices, key=inventory.repeat))
        return longest_first(indices, history) if self._settings.dispatch_longest_first else indices

    def _may_dispatch(self) -> bool:
        if self._stop.is_asked or self.is_drained:
            return False
        self.is_drained = bool(self._budget.is_spent() and (len(self._queue) or self._held))
        return not self.is_drained

    def _must_wait(self, index: int) -> bool:
        if not self.breaker.is_suspicious:
            return False
        return self.breaker.must_wait(attempts_left(self._store.history.past(index), self._settings.retry))

    def _break(self) -> None:
        self.breaker.trip()
        # Asked a second time, a stop would give up what is in flight.
        if not self._stop.is_asked:
            self._stop.ask(StopReason.ENDPOINT_BROKEN)

    def _queue_again(self, index: int, failure: Failure) -> None:
        past = self._store.history.past(index)
        if may_dispatch(past, self._settings.retry):
            self._queue.put_back(index, pause_s(self._settings.retry, failures=past.recorded, asked_s=failure.retry_after_s))

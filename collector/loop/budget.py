"""How long a session may dispatch: a time budget with a margin that is learned from the session's own durations."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

#: Durations needed before a margin is learned; fewer say too little.
_LEAST = 5
#: Durations remembered: enough for a quartile, few enough to sort at any time.
_MOST = 512


class DispatchBudget:
    """Says whether another request may leave. Asked after a slot is taken, so that waiting for one costs nothing."""

    def __init__(self, budget_s: float | None, margin_s: float | None, clock: Callable[[], float]) -> None:
        self._deadline = None if budget_s is None else clock() + budget_s
        self._margin_s = margin_s
        self._clock = clock
        self._durations: deque[float] = deque(maxlen=_MOST)

    def learn(self, elapsed_s: float) -> None:
        """Take the duration of a completed attempt into account."""
        if self._deadline is not None and self._margin_s is None:
            self._durations.append(elapsed_s)

    def is_spent(self) -> bool:
        """Whether less than the margin is left."""
        return self._deadline is not None and self._deadline - self._clock() <= self._margin()

    def _margin(self) -> float:
        if self._margin_s is not None:
            return self._margin_s
        if len(self._durations) < _LEAST:
            return 0.0
        return sorted(self._durations)[len(self._durations) * 3 // 4]

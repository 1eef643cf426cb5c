"""Which rollout is next: first those never tried in inventory order, then failed ones again when their pause is over."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence


class DispatchQueue:
    """Indices waiting for an attempt. ``pending`` is kept as it is and not copied; an array takes four bytes each."""

    def __init__(self, pending: Sequence[int], clock: Callable[[], float]) -> None:
        self._first = pending
        self._taken = 0
        self._later: list[tuple[float, int]] = []
        self._clock = clock

    def __len__(self) -> int:
        return len(self._first) - self._taken + len(self._later)

    def put_back(self, index: int, pause_s: float) -> None:
        """Try ``index`` again, not before ``pause_s`` seconds from now."""
        heapq.heappush(self._later, (self._clock() + pause_s, index))

    def take(self) -> int | None:
        """The next index whose time has come; None when all that wait must wait on, or none wait."""
        if self._taken < len(self._first):
            self._taken += 1
            return self._first[self._taken - 1]
        if self._later and self._later[0][0] <= self._clock():
            return heapq.heappop(self._later)[1]
        return None

    def wait_s(self) -> float | None:
        """Seconds until an index can be taken: 0 now, None when none waits."""
        if self._taken < len(self._first):
            return 0.0
        return max(0.0, self._later[0][0] - self._clock()) if self._later else None

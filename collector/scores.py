"""The sum and the ends of many rewards, in constant memory and without rounding."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Self


class Scores:
    """Rewards that were added: how many, their exactly rounded sum, the smallest and the largest."""

    __slots__ = ("_parts", "count", "high", "low")

    def __init__(self) -> None:
        self.count = 0
        self.low: float | None = None
        self.high: float | None = None
        #: Floats that do not overlap and whose exact sum is the sum of all rewards (Shewchuk 1997).
        self._parts: list[float] = []

    @classmethod
    def of(cls, rewards: Iterable[float]) -> Self:
        scores = cls()
        for reward in rewards:
            scores.add(reward)
        return scores

    @property
    def total(self) -> float | None:
        """Their sum as ``math.fsum`` gives it, in whatever order they came; None when there are none."""
        return math.fsum(self._parts) if self.count else None

    def add(self, reward: float) -> None:
        """Take one more reward into account."""
        self.count += 1
        self.low = reward if self.low is None or reward < self.low else self.low
        self.high = reward if self.high is None or reward > self.high else self.high
        rest: list[float] = []
        for part in self._parts:
            greater, lesser = (reward, part) if abs(reward) >= abs(part) else (part, reward)
            reward = greater + lesser
            if error := lesser - (reward - greater):
                rest.append(error)
        self._parts = [*rest, float(reward)]

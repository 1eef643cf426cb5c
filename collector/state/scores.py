"""The sum and the ends of many rewards, in constant memory and without rounding."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import chain
from operator import neg
from typing import Final, Self

#: Floats up to here can be added up, a million million of them, and the sum is still finite.
_LARGE: Final = 1e290


class Scores:
    """Rewards that were added: how many, their exactly rounded sum, the smallest and the largest."""

    __slots__ = ("_beyond", "_parts", "count", "high", "low")

    def __init__(self) -> None:
        self.count = 0
        self.low: float | None = None
        self.high: float | None = None
        #: Floats that do not overlap and whose exact sum is the sum of all rewards up to ``_LARGE`` (Shewchuk 1997).
        self._parts: list[float] = []
        #: The sum of the others.
        self._beyond: Fraction | None = None

    @classmethod
    def of(cls, rewards: Sequence[float]) -> Self:
        """The scores of ``rewards``, as if they had been added one by one."""
        scores = cls()
        low, high = min(rewards, default=0.0), max(rewards, default=0.0)
        if low < -_LARGE or high > _LARGE:
            for reward in rewards:
                scores.add(reward)
        elif rewards:
            scores.count, scores.low, scores.high = len(rewards), low, high
            scores._parts = _exact_parts(rewards)
        return scores

    @classmethod
    def together(cls, scores: Iterable[Self]) -> Self:
        """All of several ``scores``, as if every reward had been added to one."""
        made = cls()
        some = [part for part in scores if part.count]
        for part in some:
            for number in part._parts:  # noqa: SLF001 - of the same class
                made.add(number)
            if part._beyond is not None:  # noqa: SLF001
                made._beyond = (made._beyond or Fraction()) + part._beyond  # noqa: SLF001
        # Partial sums were added, which are no rewards.
        made.count = sum(part.count for part in some)
        made.low = min((part.low for part in some if part.low is not None), default=None)
        made.high = max((part.high for part in some if part.high is not None), default=None)
        return made

    @property
    def total(self) -> float | None:
        """Their sum, rounded once, in whatever order they came; None when there are none, or it is beyond all floats."""
        if not self.count:
            return None
        return math.fsum(self._parts) if self._beyond is None else _rounded(self._beyond + sum(map(Fraction, self._parts)))

    def add(self, reward: float) -> None:
        """Take one more reward into account."""
        self.count += 1
        self.low = reward if self.low is None or reward < self.low else self.low
        self.high = reward if self.high is None or reward > self.high else self.high
        if abs(reward) > _LARGE:
            self._beyond = (self._beyond or Fraction()) + Fraction(reward)
            return
        rest: list[float] = []
        for part in self._parts:
            greater, lesser = (reward, part) if abs(reward) >= abs(part) else (part, reward)
            reward = greater + lesser
            if error := lesser - (reward - greater):
                rest.append(error)
        self._parts = [*rest, float(reward)]


def exact_sum(values: Sequence[float]) -> float | None:
    """The sum of finite ``values``, rounded once; None when it is beyond all floats."""
    try:
        return math.fsum(values)
    except OverflowError:
        # On the way only, perhaps.
        return _rounded(sum(map(Fraction, values), Fraction()))


def _rounded(exact: Fraction) -> float | None:
    try:
        return float(exact)
    except OverflowError:
        return None


def _exact_parts(values: Sequence[float]) -> list[float]:
    """A few floats with exactly the sum of ``values``, the smallest first."""
    parts: list[float] = []
    while rest := math.fsum(chain(values, map(neg, parts))):
        parts.append(rest)
    return parts[::-1] or [0.0]

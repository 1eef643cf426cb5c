"""95 % intervals of means by Student's t, one sample and two, clipped to what the figure can be.

scipy is imported when the first interval is asked for: most commands need none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from merge.metrics.figures import deviation, mean_of

#: Share of the distribution below the upper end of a two-sided 95 % interval.
_UPPER: Final = 0.975


class Interval(NamedTuple):
    """Both ends of a 95 % interval."""

    low: float
    high: float


class Range(NamedTuple):
    """What a figure can be."""

    low: float = -math.inf
    high: float = math.inf

    def clip(self, interval: Interval) -> Interval:
        """``interval`` without what cannot be."""
        return Interval(max(self.low, interval.low), min(self.high, interval.high))


ANYTHING: Final = Range()


def range_of(smallest: float, largest: float) -> Range:
    """The range that values between ``smallest`` and ``largest`` show: shares lie in [0, 1], counts are not negative."""
    if smallest < 0:
        return ANYTHING
    return Range(0.0, 1.0) if largest <= 1 else Range(0.0)


def mean_interval(values: Sequence[float]) -> Interval | None:
    """The interval of the mean of ``values``; None for fewer than two, which say nothing of their spread."""
    std = deviation(values)
    return None if std is None else interval_of(mean_of(values), std, len(values))


def interval_of(mean: float, std: float, count: int, possible: Range = ANYTHING) -> Interval:
    """The interval of the ``mean`` of ``count`` values, at least two, with the sample deviation ``std``."""
    reach = t_quantile(count - 1) * std / math.sqrt(count)
    return possible.clip(Interval(mean - reach, mean + reach))


def difference_interval(base: Sequence[float], candidate: Sequence[float]) -> Interval | None:
    """Welch's interval of the mean of ``candidate`` minus that of ``base``; None when a side has fewer than two values."""
    first, second = deviation(base), deviation(candidate)
    if first is None or second is None:
        return None
    delta = mean_of(candidate) - mean_of(base)
    if not first and not second:
        return Interval(delta, delta)
    # Squares of the largest and of the smallest floats are none; those of a power of two below are exact.
    scale = math.ldexp(1.0, math.frexp(max(first, second))[1] - 1)
    parts = ((first / scale) ** 2 / len(base), (second / scale) ** 2 / len(candidate))
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / (len(base) - 1) + parts[1] ** 2 / (len(candidate) - 1))
    reach = t_quantile(freedom) * math.sqrt(sum(parts)) * scale
    return Interval(delta - reach, delta + reach)


@lru_cache(maxsize=4096)
def t_quantile(freedom: float) -> float:
    """The upper end of a two-sided 95 % interval of Student's t with ``freedom`` degrees."""
    from scipy.special import stdtrit  # noqa: PLC0415 - a third of a second to import, and only intervals need it

    return float(stdtrit(freedom, _UPPER))

"""Exact small statistics. Pure: sums are math.fsum, so that a score does not depend on the order of its rows.

Large samples come as arrays and go through numpy: a Python number for each value would take four times the memory.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

#: Samples of at most so many values are remembered.
_FEW: Final = 8
#: From so many values on numpy is faster.
_MANY: Final = 64


class Summary(NamedTuple):
    """Five figures of a sample; ``std`` is the sample deviation and None for fewer than two values."""

    mean: float
    max: float
    min: float
    median: float
    std: float | None


#: The five figures of a field that no row has.
NO_FIGURES: Final[tuple[None, ...]] = (None,) * len(Summary._fields)


def summarize(values: Sequence[float]) -> Summary | None:
    """The summary of ``values``; None when there are none."""
    if not values:
        return None
    if len(values) <= _FEW:
        return _summary_of_few(tuple(values))
    return _summary(values)


@lru_cache(maxsize=1 << 14)
def _summary_of_few(values: tuple[float, ...]) -> Summary:
    """Of the repeats of a task: scores and constants come again and again."""
    return _summary(values)


def _summary(values: Sequence[float]) -> Summary:
    count = len(values)
    ordered = sorted(values) if count < _MANY else in_order(values)
    low, high = ordered[0], ordered[-1]
    if low == high:
        return Summary(math.fsum(ordered) / count, high, low, low, 0.0 if count > 1 else None)
    mean = math.fsum(ordered) / count
    middle = count // 2
    median = ordered[middle] if count % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return Summary(mean, high, low, median, math.sqrt(_squares(ordered, mean) / (count - 1)))


def in_order(values: Sequence[float]) -> Sequence[float]:
    """``values``, rising."""
    return sorted(values) if len(values) < _MANY else array("d", np.sort(np.asarray(values, dtype=np.float64)).tobytes())


def _squares(values: Sequence[float], mean: float) -> float:
    """The sum of squared distances from ``mean``."""
    if len(values) < _MANY:
        return math.fsum([(value - mean) ** 2 for value in values])
    return math.fsum(np.square(np.asarray(values, dtype=np.float64) - mean).data)


def mean_of(values: Sequence[float]) -> float:
    """The mean of at least one value."""
    return math.fsum(values) / len(values)


def deviation(values: Sequence[float]) -> float | None:
    """The sample standard deviation (n - 1); None for fewer than two values."""
    if len(values) < 2:
        return None
    if min(values) == max(values):
        # The mean of equal values is rounded; they do not differ from it.
        return 0.0
    return math.sqrt(_squares(values, mean_of(values)) / (len(values) - 1))


def quantile(ordered: Sequence[float], fraction: float) -> float:
    """The value below which ``fraction`` of the rising ``ordered`` lies, interpolated between neighbours."""
    place = (len(ordered) - 1) * fraction
    low = math.floor(place)
    high = math.ceil(place)
    if low == high:
        return ordered[low]
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def pass_at(k: int, *, samples: int, right: int) -> float:
    """The unbiased chance that one of ``k`` of ``samples`` answers is right when ``right`` of them are. ``k <= samples``."""
    wrong = samples - right
    if wrong < k:
        return 1.0
    # Integers of any size, divided once: exact to the last digit where a product of quotients drifts.
    return (math.comb(samples, k) - math.comb(wrong, k)) / math.comb(samples, k)

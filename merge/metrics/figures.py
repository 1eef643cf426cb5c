"""Exact small statistics. Pure: sums are rounded once, so that a score does not depend on the order of its rows.

Large samples come as arrays and go through numpy: a Python number for each value would take four times the memory. Any finite
numbers do, also those whose sum or whose squares are none: they take the standard library's slower way.
"""

from __future__ import annotations

import math
import statistics
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

#: Samples of at most so many values are remembered.
_FEW: Final = 8
#: From so many values on numpy is faster.
_MANY: Final = 64
#: Sums of whole numbers up to here, and of a thousand of their squares, are whole numbers of 64 bits.
_WHOLE_UP_TO: Final = float(1 << 26)
_SQUARES_AT_ONCE: Final = 1 << 10
#: Distances between these have squares that floats can hold.
_SHORT: Final = 1e-140
_LONG: Final = 1e140


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
    """The summary of a task's repeats, kept: the same scores and constants come again and again."""
    return _summary(values)


def _summary(values: Sequence[float]) -> Summary:
    count = len(values)
    ordered = in_order(values)
    low, high = ordered[0], ordered[-1]
    mean = mean_of(ordered)
    if low == high:
        return Summary(mean, high, low, low, 0.0 if count > 1 else None)
    middle = count // 2
    median = ordered[middle] if count % 2 else halfway(ordered[middle - 1], ordered[middle])
    return Summary(mean, high, low, median, _deviation(ordered, Spread(mean, low, high), count - 1))


def in_order(values: Sequence[float]) -> Sequence[float]:
    """``values``, rising."""
    return sorted(values) if len(values) < _MANY else array("d", np.sort(np.asarray(values, dtype=np.float64)).tobytes())


def halfway(low: float, high: float) -> float:
    """The middle between two numbers."""
    middle = (low + high) / 2
    return middle if math.isfinite(middle) else low / 2 + high / 2


def mean_of(values: Sequence[float]) -> float:
    """The mean of at least one value."""
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        return statistics.mean(values)


def deviation(values: Sequence[float], *, of_population: bool = False) -> float | None:
    """The deviation of a sample (n - 1), None for fewer than two values; or of a population (n), of at least one."""
    divisor = len(values) - (not of_population)
    if divisor < 1:
        return None
    low, high = min(values), max(values)
    if low == high:
        # The mean of equal values is rounded; they do not differ from it.
        return 0.0
    return _deviation(values, Spread(mean_of(values), low, high), divisor)


class Spread(NamedTuple):
    """The mean of a sample and its ends."""

    mean: float
    low: float
    high: float


def _deviation(values: Sequence[float], spread: Spread, divisor: int) -> float:
    """The root of the squared distances from the mean, summed up and divided; not all ``values`` are equal."""
    mean, low, high = spread
    if not (_SHORT < high - low < _LONG):
        return _slow_deviation(values, is_population=divisor == len(values))
    if low >= -_WHOLE_UP_TO and high <= _WHOLE_UP_TO and (sums := _whole_sums(values)) is not None:
        total, squares = sums
        # Integers, divided once.
        return math.sqrt((len(values) * squares - total * total) / (len(values) * divisor))
    if len(values) < _MANY:
        return math.sqrt(math.fsum([(value - mean) ** 2 for value in values]) / divisor)
    return math.sqrt(math.fsum(np.square(np.asarray(values, dtype=np.float64) - mean).data) / divisor)


def _whole_sums(values: Sequence[float]) -> tuple[int, int] | None:
    """The sums of ``values`` up to ``_WHOLE_UP_TO`` and of their squares; None when one of them is not whole."""
    if len(values) < _MANY:
        whole = [int(value) for value in values]
        return (sum(whole), sum([value * value for value in whole])) if whole == list(values) else None
    numbers = np.asarray(values, dtype=np.float64)
    integers = numbers.astype(np.int64)
    if not np.array_equal(integers, numbers):
        return None
    parts = range(0, len(integers), _SQUARES_AT_ONCE)
    squares = sum(int(np.square(integers[part : part + _SQUARES_AT_ONCE]).sum()) for part in parts)
    return int(integers.sum()), squares


def _slow_deviation(values: Sequence[float], *, is_population: bool) -> float:
    try:
        return statistics.pstdev(values) if is_population else statistics.stdev(values)
    except OverflowError:
        return math.inf


def quantile(ordered: Sequence[float], fraction: float) -> float:
    """The value below which ``fraction`` of the rising ``ordered`` lies, interpolated between neighbours."""
    place = (len(ordered) - 1) * fraction
    low = math.floor(place)
    high = math.ceil(place)
    if low == high:
        return ordered[low]
    distance = ordered[high] - ordered[low]
    if math.isinf(distance):
        return ordered[low] * (high - place) + ordered[high] * (place - low)
    return ordered[low] + distance * (place - low)


def pass_at(k: int, *, samples: int, right: int) -> float:
    """The unbiased chance that one of ``k`` of ``samples`` answers is right when ``right`` of them are. ``k <= samples``."""
    wrong = samples - right
    if wrong < k:
        return 1.0
    # Integers of any size, divided once: exact to the last digit where a product of quotients drifts.
    return (math.comb(samples, k) - math.comb(wrong, k)) / math.comb(samples, k)

"""Numbers as bars: equal bins, with what lies far out gathered in the last one. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from merge.metrics.figures import mean_of, quantile

_BINS: Final = 20
#: Values up to this quantile share the bins; a single outlier would push all others into the first one.
_INSIDE: Final = 0.99
_LONG: Final = 1e15


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram with its labels, and the figures that a person asks for next."""

    labels: tuple[str, ...]
    counts: tuple[int, ...]
    figures: tuple[tuple[str, str], ...]


def distribute(values: Sequence[float]) -> Distribution | None:
    """The distribution of the finite ``values``; None when there are none."""
    ordered = sorted(value for value in values if math.isfinite(value))
    if not ordered:
        return None
    quantiles = [("median", 0.5), ("90 %", 0.9), ("99 %", 0.99)]
    named = [(name, quantile(ordered, fraction)) for name, fraction in quantiles]
    figures = [("n", f"{len(ordered):,}"), ("mean", short(mean_of(ordered))), ("least", short(ordered[0]))]
    figures += [(name, short(value)) for name, value in named] + [("most", short(ordered[-1]))]
    distinct = sorted(set(ordered)) if len(ordered) < 1000 or len(set(ordered[:1000])) <= _BINS else []
    if 0 < len(distinct) <= _BINS // 2:
        counts = [ordered.count(value) for value in distinct]
        return Distribution(tuple(map(short, distinct)), tuple(counts), tuple(figures))
    return _binned(ordered, tuple(figures))


def _binned(ordered: Sequence[float], figures: tuple[tuple[str, str], ...]) -> Distribution:
    low, high = ordered[0], quantile(ordered, _INSIDE)
    if ordered[-1] - low <= 2 * (high - low) or high == low:
        high = ordered[-1]
    # The distance of two numbers at both ends of all floats would be none.
    step = high / _BINS - low / _BINS
    counts = [0] * _BINS
    for value in ordered:
        counts[min(_BINS - 1, int(value / step - low / step)) if step else 0] += 1
    labels = [short(low + step * i) for i in range(_BINS)]
    if high < ordered[-1]:
        labels[-1] = f"≥ {labels[-1]}"
    return Distribution(tuple(labels), tuple(counts), figures)


def ticks(most: float, *, whole: bool = False) -> list[float]:
    """Four to six round numbers from 0 to ``most`` or just below it, for an axis; only integers with ``whole``."""
    if most <= 0:
        return [0.0]
    power = 10.0 ** math.floor(math.log10(most))
    wanted = (power * factor for factor in (0.1, 0.2, 0.25, 0.5, 1.0, 2.0))
    step = next(step for step in wanted if most / step < 6 and (not whole or (step >= 1 and step.is_integer())))
    return [step * number for number in range(int(most / step + 1e-9) + 1)]


def short(value: float) -> str:
    """Three digits, thousands separated; with a power of ten what would be a long row of digits."""
    return f"{value:,.0f}" if 1000 <= abs(value) < _LONG else f"{value:.3g}"

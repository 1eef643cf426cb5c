"""From columns to metrics: per field, per task and per repeat, and what they rest on. Pure.

Every figure is in its field's unit; one without data is None, never 0. Masked rows are not in the columns. ``mean/*`` weighs
every rollout alike; ``mean_of_tasks/reward`` weighs every task alike.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np

from collector.formats import rows
from merge.metrics.figures import NO_FIGURES, Summary, in_order, mean_of, quantile, summarize
from merge.metrics.intervals import interval_of, range_of
from merge.metrics.table import RowTable

Metrics: TypeAlias = dict[str, float | int | None]

REWARD: Final = "reward"
#: How each family weighs, for readers of the file.
WEIGHTING: Final = {
    "mean/*": "every rollout alike",
    "mean_of_tasks/*": "every task alike",
    "pass@*, majority@*": "every task alike",
    "*_across_repeats/*": "every repeat alike",
}


def field_metrics(table: RowTable) -> Metrics:
    """``mean/f, max/f, min/f, median/f, std/f`` of every field over all rows that have it."""
    metrics: Metrics = {}
    for name in table.fields:
        metrics.update(_summary_of(name, present(table.column(name))))
    if REWARD in table.fields:
        means = array("d", map(mean_of, rewards_by_task(table)))
        metrics[f"mean_of_tasks/{REWARD}"] = mean_of(means) if means else None
    return metrics


def repeat_metrics(table: RowTable, inventory: Sequence[int]) -> list[dict[str, Any]]:
    """One entry for each repeat, when there are several: its counts, and of each field nine figures and a 95 % interval."""
    found, counts = np.unique(np.asarray(inventory) & 0xFFFFFFFF, return_counts=True)
    expected: dict[int, int] = dict(zip(found.tolist(), counts.tolist(), strict=True))
    if len(expected) < 2:
        return []
    repeats = np.asarray(table.keys) & 0xFFFFFFFF
    entries: list[dict[str, Any]] = []
    for repeat in sorted(expected):
        chosen = np.flatnonzero(repeats == repeat)
        entry: dict[str, Any] = {
            rows.ROLLOUT_INDEX: repeat,
            "sample_count": len(chosen),
            "missing_count": expected[repeat] - len(chosen),
        }
        for name in table.fields:
            entry.update(_repeat_summary(name, present(np.asarray(table.column(name))[chosen])))
        entries.append(entry)
    return entries


def across_repeats(repeats: Sequence[dict[str, Any]]) -> Metrics:
    """Each ``mean/f`` of the repeats as a sample: mean, median, std, min, max, standard error and a 95 % interval."""
    metrics: Metrics = {}
    for name in dict.fromkeys(key for entry in repeats for key in entry if key.startswith("mean/")):
        values = [entry[name] for entry in repeats if entry[name] is not None]
        summary = summarize(values)
        if summary is None:
            continue
        figures = summary._asdict()
        figures["se"], figures["ci_low_95"], figures["ci_high_95"] = _uncertainty(summary, len(values))
        metrics.update({f"{figure}_across_repeats/{name}": value for figure, value in figures.items()})
    return metrics


def coverage_metrics(table: RowTable, *, expected: int | None) -> Metrics:
    """How many rollouts and tasks the figures rest on, and what the mean reward would be with all others 0, and 1.

    ``expected`` rollouts: those of missing shards included; None when nobody knows.
    """
    rewards = np.asarray(table.column(REWARD))
    keys, masked = np.asarray(table.keys), np.asarray(table.masked)
    scored = keys[~np.isnan(rewards)]
    masked_tasks = np.unique(masked >> 32)
    completed = len(keys) + len(masked)
    low, high = _bounds(present(rewards), expected)
    return {
        "coverage/expected": expected,
        "coverage/scored": len(scored),
        "coverage/missing": None if expected is None else expected - completed,
        # What was filled in is counted by whoever fills it in.
        "coverage/imputed": 0,
        "coverage/failures_counted_as_zero": 0,
        "coverage/measured_rollouts": len(scored),
        "coverage/masked_rollouts": len(table.masked),
        "coverage/unscored_rollouts": len(table.keys) - len(scored),
        "coverage/measured_tasks": len(np.unique(scored >> 32)),
        "coverage/fully_masked_tasks": len(np.setdiff1d(masked_tasks, keys >> 32)),
        "coverage/reward_lower_bound": low,
        "coverage/reward_upper_bound": high,
    }


def key_metrics(fields: Metrics, passes: Metrics, coverage: Metrics) -> Metrics:
    """What a person reads first: all means, the pass@k family at the largest k that every task supports, and the coverage."""
    means = {name: value for name, value in fields.items() if name.startswith("mean")}
    # Without a prefix, the figures of all tasks; with one, those of a subset, whose largest k may be another. At a larger k a
    # figure rests on some of the tasks, perhaps on one, and is no headline.
    tasks: dict[str, dict[int, float | None]] = {}
    for name in passes:
        prefix, found, rest = name.rpartition("pass@")
        if found and rest.endswith("/num_tasks"):
            tasks.setdefault(prefix, {})[int(rest.partition("/")[0])] = passes[name]
    largest = {prefix: max(k for k, count in counts.items() if count == counts[1]) for prefix, counts in tasks.items()}
    family = [
        prefix + name.format(k=k)
        for prefix, k in largest.items()
        for name in (f"pass@{{k}}/{REWARD}", f"pass@1[avg-of-{{k}}]/{REWARD}", f"majority@{{k}}/{REWARD}")
    ]
    last = {name: passes[name] for name in family if name in passes}
    return {**means, **last, **coverage}


def present(column: Iterable[float]) -> array[float]:
    """The values of ``column`` that are there."""
    values = np.asarray(column, dtype=np.float64)
    return array("d", values[~np.isnan(values)].tobytes())


def rewards_by_task(table: RowTable) -> Iterator[array[float]]:
    """The rewards of each task that has one, in the order of its repeats."""
    keys, rewards = np.asarray(table.keys), np.asarray(table.column(REWARD))
    tasks, rewards = keys[~np.isnan(rewards)] >> 32, present(rewards)
    starts = np.flatnonzero(np.diff(tasks, prepend=-1)).tolist()
    return (rewards[begin:end] for begin, end in pairwise([*starts, len(rewards)]))


def _summary_of(name: str, values: Sequence[float]) -> Metrics:
    return dict(zip(names_of(name), summarize(values) or NO_FIGURES, strict=True))


def names_of(field: str) -> tuple[str, ...]:
    """What the five figures of ``field`` are called."""
    return tuple(f"{figure}/{field}" for figure in Summary._fields)


def _repeat_summary(name: str, values: Sequence[float]) -> Metrics:
    ordered = in_order(values)
    summary = summarize(ordered)
    metrics: Metrics = dict(zip(names_of(name), summary or NO_FIGURES, strict=True))
    sem, low, high = _uncertainty(summary, len(ordered)) if summary else (None, None, None)
    metrics[f"sem/{name}"] = sem
    metrics[f"p25/{name}"] = quantile(ordered, 0.25) if ordered else None
    metrics[f"p75/{name}"] = quantile(ordered, 0.75) if ordered else None
    metrics[f"ci_low_95/{name}"], metrics[f"ci_high_95/{name}"] = low, high
    return metrics


def _uncertainty(summary: Summary, count: int) -> tuple[float, float, float] | tuple[None, None, None]:
    """The standard error of the mean of ``count`` values and its interval's ends; None for one value."""
    if summary.std is None:
        return None, None, None
    interval = interval_of(summary.mean, summary.std, count, range_of(summary.min, summary.max))
    return summary.std / math.sqrt(count), interval.low, interval.high


def _bounds(rewards: Sequence[float], expected: int | None) -> tuple[float, float] | tuple[None, None]:
    if not rewards or not expected or min(rewards) < 0 or max(rewards) > 1:
        return None, None
    total = math.fsum(rewards)
    return total / expected, (total + (expected - len(rewards))) / expected

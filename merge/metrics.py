"""From columns to metrics: per field, per task and per repeat, and the pass@k family. Pure.

Percentages (pass@k, avg-of-k and their deviations) are all on the scale 0 to 100; every other figure is in its field's unit.
A figure without data is None, never 0. Masked rows are not in the columns.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final, TypeAlias

from collector import rows
from merge.figures import Summary, deviation, mean_of, pass_at, quantile, summarize
from merge.select import repeat_of, task_of
from merge.table import RowTable

Metrics: TypeAlias = dict[str, float | int | None]

REWARD: Final = "reward"
#: The five figures of a field that no row has.
_NOTHING: Final = (None,) * len(Summary._fields)


def field_metrics(table: RowTable) -> Metrics:
    """``mean/f, max/f, min/f, median/f, std/f`` of every field over all rows that have it."""
    metrics: Metrics = {}
    for name in table.fields:
        metrics.update(_summary_of(name, present(table.column(name))))
    return metrics


def group_metrics(table: RowTable, inventory: Sequence[int]) -> Iterator[dict[str, Any]]:
    """One entry for each task of the ``inventory`` (rising keys): counts, rollouts and five figures a field."""
    columns = [(_names_of(name), table.column(name)) for name in table.fields]
    begin = 0
    for task, expected in groupby(inventory, key=task_of):
        count = sum(1 for _ in expected)
        end = bisect_left(table.keys, (task + 1) << 32, begin)
        group = _group(task, count, table.keys[begin:end])
        for names, column in columns:
            group.update(zip(names, summarize(present(column[begin:end])) or _NOTHING, strict=True))
        yield group
        begin = end


def repeat_metrics(table: RowTable, inventory: Sequence[int]) -> list[dict[str, Any]]:
    """One entry for each repeat, when there are several: its counts and nine figures of each field."""
    expected = Counter(map(repeat_of, inventory))
    if len(expected) < 2:
        return []
    by_repeat = _rows_by_repeat(table)
    entries: list[dict[str, Any]] = []
    for repeat in sorted(expected):
        chosen = by_repeat.get(repeat, array("q"))
        entry: dict[str, Any] = {
            rows.ROLLOUT_INDEX: repeat,
            "sample_count": len(chosen),
            "missing_count": expected[repeat] - len(chosen),
        }
        for name in table.fields:
            column = table.column(name)
            entry.update(_repeat_summary(name, present([column[i] for i in chosen])))
        entries.append(entry)
    return entries


def pass_metrics(table: RowTable) -> Metrics:
    """``pass@k`` and ``pass@1[avg-of-k]`` of the reward in percent, over the tasks with at least k scored rollouts.

    Nothing when a reward lies outside [0, 1], since a percentage would mean nothing then.
    """
    rewards = _rewards_by_task(table)
    if any(not 0 <= reward <= 1 for task in rewards for reward in task):
        return {}
    most = max(map(len, rewards), default=0)
    is_binary = all(reward in {0.0, 1.0} for task in rewards for reward in task)
    metrics: Metrics = {}
    for k in range(1, most + 1):
        enough = [task for task in rewards if len(task) >= k]
        metrics[f"pass@{k}/{REWARD}"] = 100 * mean_of([_best_of(task, k, is_binary=is_binary) for task in enough])
        metrics[f"pass@1[avg-of-{k}]/{REWARD}"] = 100 * mean_of([mean_of(task[:k]) for task in enough])
        metrics[f"pass@{k}/num_tasks"] = len(enough)
        if k > 1:
            metrics.update(_spread(enough, k))
    return metrics


def coverage_metrics(table: RowTable, *, expected: int) -> Metrics:
    """How many rollouts and tasks the figures rest on. ``expected`` rollouts: those of missing shards included."""
    scored = [key for key, reward in zip(table.keys, table.column(REWARD), strict=True) if not math.isnan(reward)]
    measured_tasks = {task_of(key) for key in scored}
    unmasked_tasks = {task_of(key) for key in table.keys}
    masked_tasks = {task_of(key) for key in table.masked}
    completed = len(table.keys) + len(table.masked)
    return {
        "coverage/expected": expected,
        "coverage/scored": len(scored),
        "coverage/missing": expected - completed,
        # Nothing is ever filled in here; the key is what readers of such files look for.
        "coverage/imputed": 0,
        "coverage/measured_rollouts": len(scored),
        "coverage/masked_rollouts": len(table.masked),
        "coverage/unscored_rollouts": len(table.keys) - len(scored),
        "coverage/measured_tasks": len(measured_tasks),
        "coverage/fully_masked_tasks": len(masked_tasks - unmasked_tasks),
    }


def key_metrics(fields: Metrics, passes: Metrics, coverage: Metrics) -> Metrics:
    """What a person reads first: all means, the pass@k family at the largest k, and the coverage they rest on."""
    means = {name: value for name, value in fields.items() if name.startswith("mean/")}
    most = max((int(name.partition("@")[2].partition("/")[0]) for name in passes if name.endswith("/num_tasks")), default=0)
    last = {name: passes[name] for name in (f"pass@{most}/{REWARD}", f"pass@1[avg-of-{most}]/{REWARD}") if name in passes}
    return {**means, **last, **coverage}


def present(column: Sequence[float]) -> list[float]:
    """The values of ``column`` that are there."""
    return [value for value in column if value == value]  # noqa: PLR0124 - NaN, the mark of absence, is not equal to itself


def _summary_of(name: str, values: list[float]) -> Metrics:
    return dict(zip(_names_of(name), summarize(values) or _NOTHING, strict=True))


def _names_of(field: str) -> tuple[str, ...]:
    return tuple(f"{figure}/{field}" for figure in Summary._fields)


def _group(task: int, expected: int, keys: Sequence[int]) -> dict[str, Any]:
    return {
        rows.TASK_INDEX: task,
        "num_rollouts": len(keys),
        "expected_num_rollouts": expected,
        "missing_num_rollouts": expected - len(keys),
        "reward_profile_completion_pct": 100 * len(keys) / expected,
        "rollout_infos": [{"rollout_id": f"{task}:{repeat_of(key)}"} for key in keys],
    }


def _rows_by_repeat(table: RowTable) -> dict[int, array[int]]:
    found: dict[int, array[int]] = {}
    for position, key in enumerate(table.keys):
        found.setdefault(repeat_of(key), array("q")).append(position)
    return found


def _repeat_summary(name: str, values: list[float]) -> Metrics:
    metrics = _summary_of(name, values)
    std = metrics[f"std/{name}"]
    ordered = sorted(values)
    metrics[f"sem/{name}"] = None if std is None else std / math.sqrt(len(values))
    metrics[f"p25/{name}"] = quantile(ordered, 0.25) if ordered else None
    metrics[f"p75/{name}"] = quantile(ordered, 0.75) if ordered else None
    return metrics


def _rewards_by_task(table: RowTable) -> list[list[float]]:
    pairs = zip(table.keys, table.column(REWARD), strict=True)
    groups = (present([reward for _, reward in task]) for _, task in groupby(pairs, key=lambda pair: task_of(pair[0])))
    return [group for group in groups if group]


def _best_of(task: Sequence[float], k: int, *, is_binary: bool) -> float:
    if is_binary:
        return pass_at(k, samples=len(task), right=int(math.fsum(task)))
    return max(task[:k])


def _spread(tasks: Sequence[Sequence[float]], k: int) -> Metrics:
    runs = [100 * mean_of([task[run] for task in tasks]) for run in range(k)]
    within = [100 * spread for task in tasks if (spread := deviation(task[:k])) is not None]
    std = deviation(runs)
    prefix = f"pass@1[avg-of-{k}]/{REWARD}"
    return {
        f"{prefix}/std_dev_across_runs": std,
        f"{prefix}/std_err_across_runs": None if std is None else std / math.sqrt(k),
        f"{prefix}/avg_sample_std_dev": mean_of(within) if within else None,
    }

"""Figures of every task of a table. Pure.

Tasks are many and their rollouts few: what arrays compute exactly is computed for all tasks at once, the rest one by one.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import Any, Final, TypeAlias

import numpy as np

from collector.formats import rows
from merge.metrics.array_types import Flags, Floats, Integers
from merge.metrics.fields import REWARD, names_of
from merge.metrics.figures import NO_FIGURES, summarize
from merge.metrics.table import RowTable

#: Below this a float holds every whole number.
_EXACT_BELOW: Final = float(1 << 53)

#: The figures of one field of one task; None where there is none.
_Figures: TypeAlias = Sequence[float | None]


def group_metrics(table: RowTable, inventory: Sequence[int]) -> Iterator[dict[str, Any]]:
    """One entry for each task of ``inventory``: counts, rollouts and five figures a field.

    ``inventory`` holds rising keys: of all rollouts, or of some whole tasks that follow each other.
    """
    begin = bisect_left(table.keys, inventory[0]) if len(inventory) else 0
    end = bisect_right(table.keys, inventory[-1], begin) if len(inventory) else 0
    tasks, expected = np.unique(np.asarray(inventory, dtype=np.int64) >> 32, return_counts=True)
    keys = table.keys[begin:end]
    columns = {name: table.column(name)[begin:end] for name in table.fields}
    # Rows of a task follow each other.
    places = np.searchsorted(tasks, np.asarray(keys, dtype=np.int64) >> 32)
    figures = [_figures_of_tasks(np.asarray(column), places, len(tasks)) for column in columns.values()]
    names = list(chain.from_iterable(map(names_of, columns)))
    bounds = np.searchsorted(places, np.arange(len(tasks) + 1)).tolist()
    rewards = columns.get(REWARD) or array("d", [math.nan]) * len(keys)
    each_task = zip(*figures, strict=True) if figures else repeat((), len(tasks))
    for index, (task, count, found) in enumerate(zip(tasks.tolist(), expected.tolist(), each_task, strict=True)):
        of_task = slice(bounds[index], bounds[index + 1])
        group = _group(task, count, keys[of_task], rewards[of_task])
        group.update(zip(names, chain.from_iterable(found), strict=True))
        yield group


def parts_of_tasks(inventory: Sequence[int], size: int) -> list[slice]:
    """``inventory`` (rising keys) in parts of at most ``size`` tasks, none of which is divided."""
    tasks = np.asarray(inventory) >> 32
    starts = np.flatnonzero(np.diff(tasks, prepend=-1))[::size].tolist()
    return [slice(begin, end) for begin, end in zip(starts, [*starts[1:], len(tasks)], strict=True)]


def _group(task: int, expected: int, keys: Sequence[int], rewards: Sequence[float]) -> dict[str, Any]:
    return {
        rows.TASK_INDEX: task,
        "num_rollouts": len(keys),
        "expected_num_rollouts": expected,
        "missing_num_rollouts": expected - len(keys),
        "reward_profile_completion_pct": 100 * len(keys) / expected if expected else None,
        # orjson writes NaN as null: a rollout without a reward.
        "rollout_infos": [
            {"rollout_id": f"{task}:{key & 0xFFFFFFFF}", rows.ROLLOUT_INDEX: key & 0xFFFFFFFF, REWARD: reward}
            for key, reward in zip(keys, rewards, strict=True)
        ],
    }


def _figures_of_tasks(column: Floats, places: Integers, tasks: int) -> list[_Figures]:
    """What ``summarize`` says of the values of each of ``tasks``; ``places`` says of each value which task it is of, rising."""
    found: list[_Figures] = [NO_FIGURES] * tasks
    is_there = ~np.isnan(column)
    values, places = column[is_there], places[is_there]
    if not len(values):
        return found
    values = values[np.lexsort((values, places))]
    starts = np.flatnonzero(np.diff(places, prepend=-1))
    counts = np.diff(starts, append=len(values))
    which = places[starts].tolist()
    for index, figures in zip(which, zip(*_figures_of_whole_numbers(values, starts, counts), strict=True), strict=True):
        found[index] = figures
    for index in np.flatnonzero(~_are_exact(values, starts, counts)).tolist():
        begin = starts[index]
        found[which[index]] = summarize(array("d", values[begin : begin + counts[index]].tobytes())) or NO_FIGURES
    return found


def _are_exact(values: Floats, starts: Integers, counts: Integers) -> Flags:
    """Whether all sums that the figures of a task need are whole numbers that floats hold: then no order can matter."""
    largest = np.maximum(np.abs(values[starts]), np.abs(values[starts + counts - 1]))
    # A product too large for a float is too large here, too.
    with np.errstate(over="ignore"):
        is_small = (counts * largest) ** 2 < _EXACT_BELOW
    return is_small & np.logical_and.reduceat(values == np.floor(values), starts)


def _figures_of_whole_numbers(values: Floats, starts: Integers, counts: Integers) -> list[list[float | None]]:
    """Columns of figures, right for tasks that ``_are_exact``; those of a task's ``values`` rise from its ``starts`` on."""
    middles = starts + counts // 2
    with np.errstate(all="ignore"):
        sums, squares = np.add.reduceat(values, starts), np.add.reduceat(np.square(values), starts)
        medians = np.where(counts % 2, values[middles], (values[middles - (counts > 1)] + values[middles]) / 2)
        deviations = np.sqrt((counts * squares - np.square(sums)) / (counts * np.maximum(counts - 1, 1)))
    # A single value has no deviation.
    known = [value if count > 1 else None for value, count in zip(deviations.tolist(), counts.tolist(), strict=True)]
    ends = values[starts + counts - 1], values[starts]
    return [(sums / counts).tolist(), *(end.tolist() for end in ends), medians.tolist(), known]

"""The pass@k family in percent: pass@k, avg-of-k and majority votes, of the reward and of answers that are not there. Pure.

Every task weighs alike, and for each k the tasks with at least k scored rollouts count, the same ones in every member of the
family. All figures of it, deviations included, are on the scale 0 to 100.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import Final, NamedTuple

from merge.figures import deviation, mean_of, pass_at
from merge.metrics import REWARD, Metrics
from merge.table import NO_ANSWER, NO_ROW, RowTable

MISSING_ANSWER: Final = "no_answer"
#: One object for every right and every wrong answer; a million of their own would need 24 MB.
_SHARED: Final = {0.0: 0.0, 1.0: 1.0}


class Passes(NamedTuple):
    """The figures, and of each score the percentage of every single repeat."""

    metrics: Metrics
    per_sample: dict[str, list[float]]


class _Task(NamedTuple):
    """Scored rollouts in the order of their repeats; ``answers`` are equal numbers for equal answers."""

    rewards: list[float]
    answers: array[int]


def pass_metrics(table: RowTable) -> Passes:
    """The family of ``table``; nothing when a reward lies outside [0, 1], since a percentage would mean nothing then."""
    tasks = _tasks(table)
    rewards = [task.rewards for task in tasks]
    if any(not 0 <= reward <= 1 for task in rewards for reward in task):
        return Passes({}, {})
    metrics = _family(REWARD, rewards)
    for k in range(1, max(map(len, rewards), default=0) + 1):
        metrics[f"pass@{k}/num_tasks"] = sum(len(task) >= k for task in rewards)
    scores = {REWARD: rewards}
    if table.has_answers:
        metrics.update(_votes(tasks))
        asked = [[1.0 if answer == NO_ANSWER else 0.0 for answer in task.answers if answer != NO_ROW] for task in tasks]
        scores[MISSING_ANSWER] = [task for task in asked if task]
        metrics.update(_family(MISSING_ANSWER, scores[MISSING_ANSWER]))
    return Passes(metrics, {name: _each_repeat(found) for name, found in scores.items() if found})


def _tasks(table: RowTable) -> list[_Task]:
    triples = zip(table.keys, table.column(REWARD), table.answers, strict=True)
    found: list[_Task] = []
    for _, group in groupby(triples, key=lambda triple: triple[0] >> 32):
        scored = [(_SHARED.get(reward, reward), answer) for _, reward, answer in group if not math.isnan(reward)]
        if scored:
            found.append(_Task([reward for reward, _ in scored], array("q", [answer for _, answer in scored])))
    return found


def _family(name: str, tasks: Sequence[Sequence[float]]) -> Metrics:
    is_binary = all(score in {0.0, 1.0} for task in tasks for score in task)
    metrics: Metrics = {}
    enough = list(tasks)
    runs: list[float] = []
    for k in range(1, max(map(len, tasks), default=0) + 1):
        if any(len(task) < k for task in enough):
            enough, runs = [task for task in enough if len(task) >= k], []
        while len(runs) < k:
            runs.append(100 * mean_of([task[len(runs)] for task in enough]))
        first = [task[:k] for task in enough]
        # Few sums occur in binary tasks, however many tasks there are; sums of zeros and ones are exact.
        totals = [int(sum(part)) for part in first] if is_binary else []
        best = [_pass_at(k, len(task), int(sum(task))) for task in enough] if is_binary else list(map(max, first))
        means = [total / k for total in totals] if is_binary else list(map(mean_of, first))
        metrics[f"pass@{k}/{name}"] = 100 * mean_of(best)
        metrics[f"pass@1[avg-of-{k}]/{name}"] = 100 * mean_of(means)
        if k > 1:
            within = [_binary_deviation(k, total) for total in totals] if is_binary else _deviations(first)
            metrics.update(_spread(f"pass@1[avg-of-{k}]/{name}", runs, within))
    return metrics


@lru_cache(maxsize=1 << 16)
def _pass_at(k: int, samples: int, right: int) -> float:
    return pass_at(k, samples=samples, right=right)


@lru_cache(maxsize=1 << 16)
def _binary_deviation(count: int, right: int) -> float:
    return deviation([1.0] * right + [0.0] * (count - right)) or 0.0


def _deviations(tasks: Sequence[Sequence[float]]) -> list[float]:
    return [spread for task in tasks if (spread := deviation(task)) is not None]


def _spread(prefix: str, runs: Sequence[float], within: Sequence[float]) -> Metrics:
    std = deviation(runs)
    return {
        f"{prefix}/std_dev_across_runs": std,
        f"{prefix}/std_err_across_runs": None if std is None else std / math.sqrt(len(runs)),
        f"{prefix}/avg_sample_std_dev": 100 * mean_of(within) if within else None,
    }


def _votes(tasks: Sequence[_Task]) -> Metrics:
    most = max((len(task.rewards) for task in tasks), default=0)
    voted = [_running_votes(task) for task in tasks]
    return {
        f"majority@{k}/{REWARD}": 100 * mean_of([task[k - 1] for task in voted if len(task) >= k]) for k in range(1, most + 1)
    }


def _running_votes(task: _Task) -> list[float]:
    """For every k, the reward of the most frequent (answer, reward) among the first k: their mean on a tie, 0 without any."""
    counts: dict[tuple[int, float], int] = {}
    most, result = 0, 0.0
    leaders: list[float] = []
    found: list[float] = []
    for answer, reward in zip(task.answers, task.rewards, strict=True):
        if answer not in (NO_ANSWER, NO_ROW):
            count = counts[answer, reward] = counts.get((answer, reward), 0) + 1
            if count > most:
                most, leaders, result = count, [reward], reward
            elif count == most:
                leaders.append(reward)
                result = mean_of(leaders)
        found.append(result)
    return found


def _each_repeat(tasks: Sequence[Sequence[float]]) -> list[float]:
    most = max(map(len, tasks))
    return [100 * mean_of([task[run] for task in tasks if run < len(task)]) for run in range(most)]

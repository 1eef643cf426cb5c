"""The pass@k family in percent: pass@k, avg-of-k and majority votes, of the reward and of answers that are not there. Pure.

Every task weighs alike, and for each k the tasks with at least k scored rollouts count, the same ones in every member of the
family. All figures of it, deviations included, are on the scale 0 to 100.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from typing import Final, NamedTuple

import numpy as np

from merge.metrics.array_types import Flags, Floats, Integers
from merge.metrics.fields import REWARD, Metrics
from merge.metrics.figures import deviation, mean_of, pass_at
from merge.metrics.table import RowTable
from merge.rows.numbers import NO_ANSWER, NO_ROW, NO_SUBSET

MISSING_ANSWER: Final = "no_answer"
#: Votes of so many repeats are counted for all tasks at once, in time that grows with the square of the repeats.
_FEW_REPEATS: Final = 64
#: Tasks whose votes are counted at once: what that takes on the way is some hundred bytes a task and repeat.
_TASKS_AT_ONCE: Final = 4096


class Passes(NamedTuple):
    """The figures, and of each score the percentage of every single repeat."""

    metrics: Metrics
    per_sample: dict[str, list[float]]


class _Samples(NamedTuple):
    """Scores of all tasks in one array: those of a task follow each other from its ``starts`` on, ``counts`` of them."""

    values: Floats
    starts: Integers
    counts: Integers

    @property
    def most(self) -> int:
        """The largest number of scores that a task has."""
        return int(self.counts.max(initial=0))

    def nth(self, index: int, chosen: Flags) -> Floats:
        """Score ``index`` of each of the ``chosen`` tasks, all of which have one."""
        return self.values[self.starts[chosen] + index]


def pass_metrics(table: RowTable) -> Passes:
    """The family of ``table``; nothing when a reward lies outside [0, 1], since a percentage would mean nothing then."""
    columns = _Columns(*(np.asarray(column) for column in (table.keys, table.column(REWARD), table.answers)))
    return _passes(columns, has_answers=table.has_answers)


def subset_metrics(table: RowTable) -> Metrics:
    """The family of each subset of tasks, as ``<subset>/<figure>``; nothing unless subsets were asked for.

    A task is of the subset that the first of its rows that names one names.
    """
    if not table.subset_names:
        return {}
    keys, subsets = np.asarray(table.keys), np.asarray(table.subsets)
    is_named = subsets != NO_SUBSET
    tasks, first = np.unique(keys[is_named] >> 32, return_index=True)
    of_task = subsets[is_named][first]
    columns = (keys, np.asarray(table.column(REWARD)), np.asarray(table.answers))
    metrics: Metrics = {}
    for number, name in sorted(table.subset_names.items(), key=lambda item: item[1]):
        chosen = np.isin(keys >> 32, tasks[of_task == number])
        found = _passes(_Columns(*(column[chosen] for column in columns)), has_answers=table.has_answers)
        metrics.update({f"{name}/{figure}": value for figure, value in found.metrics.items()})
    return metrics


class _Columns(NamedTuple):
    """Each row's key, reward (NaN where it has none) and number of its answer."""

    keys: Integers
    rewards: Floats
    answers: Integers


def _passes(columns: _Columns, *, has_answers: bool) -> Passes:
    keys, rewards, answers = columns
    is_scored = ~np.isnan(rewards)
    rewards, answers, tasks = rewards[is_scored], answers[is_scored], keys[is_scored] >> 32
    if np.any((rewards < 0) | (rewards > 1)):
        return Passes({}, {})
    scored = _samples(tasks, rewards)
    metrics = _family(REWARD, scored)
    for k in range(1, scored.most + 1):
        metrics[f"pass@{k}/num_tasks"] = int(np.count_nonzero(scored.counts >= k))
    scores = {REWARD: scored}
    if has_answers:
        metrics.update(_votes(scored, answers))
        is_asked = answers != NO_ROW
        asked = _samples(tasks[is_asked], (answers[is_asked] == NO_ANSWER).astype(np.float64))
        scores[MISSING_ANSWER] = asked
        metrics.update(_family(MISSING_ANSWER, asked))
    return Passes(metrics, {name: _each_repeat(found) for name, found in scores.items() if found.most})


def _samples(tasks: Integers, values: Floats) -> _Samples:
    starts = np.flatnonzero(np.diff(tasks, prepend=-1))
    return _Samples(values, starts, np.diff(np.append(starts, len(tasks))))


def _family(name: str, scores: _Samples) -> Metrics:
    is_binary = bool(np.all((scores.values == 0) | (scores.values == 1)))
    metrics: Metrics = {}
    runs: list[float] = []
    enough = np.zeros(0, dtype=np.bool_)
    for k in range(1, scores.most + 1):
        before, enough = enough, scores.counts >= k
        if not np.array_equal(before, enough):
            runs = []
        while len(runs) < k:
            runs.append(100 * _mean(scores.nth(len(runs), enough)))
        part = _binary_part(k, scores, enough) if is_binary else _any_part(k, scores, enough)
        metrics[f"pass@{k}/{name}"] = 100 * part.best
        metrics[f"pass@1[avg-of-{k}]/{name}"] = 100 * part.mean
        if k > 1:
            metrics.update(_spread(f"pass@1[avg-of-{k}]/{name}", runs, part.spread))
    return metrics


class _PartOfTasks(NamedTuple):
    """Means over tasks for one k: of pass@k, of the mean of the first k, and of the deviation among them."""

    best: float
    mean: float
    spread: float


def _binary_part(k: int, scores: _Samples, enough: Flags) -> _PartOfTasks:
    """For zeros and ones: few sums occur, however many tasks there are."""
    right = np.add.reduceat(scores.values, scores.starts)[enough].astype(np.int64)
    first = np.sum([scores.nth(index, enough) for index in range(k)], axis=0).astype(np.int64)
    pairs = scores.counts[enough] << 32 | right
    return _PartOfTasks(
        best=_mean_over(pairs, lambda pair: pass_at(k, samples=pair >> 32, right=pair & 0xFFFFFFFF)),
        mean=_mean_over(first, lambda total: total / k),
        spread=_mean_over(first, lambda total: deviation([1.0] * total + [0.0] * (k - total)) or 0.0),
    )


def _any_part(k: int, scores: _Samples, enough: Flags) -> _PartOfTasks:
    first: list[list[float]] = np.stack([scores.nth(index, enough) for index in range(k)], axis=1).tolist()
    return _PartOfTasks(
        best=mean_of([max(task) for task in first]),
        mean=mean_of([mean_of(task) for task in first]),
        spread=mean_of([deviation(task) or 0.0 for task in first]),
    )


def _mean(values: Floats) -> float:
    return math.fsum(values.data) / len(values)


def _mean_over(facts: Integers, figure: Callable[[int], float]) -> float:
    """The mean of ``figure`` over ``facts``, computed once for equal ones and rounded once."""
    distinct, counts = np.unique(facts, return_counts=True)
    values = [repeat(figure(fact), count) for fact, count in zip(distinct.tolist(), counts.tolist(), strict=True)]
    return math.fsum(chain.from_iterable(values)) / len(facts)


def _spread(prefix: str, runs: Sequence[float], within: float) -> Metrics:
    std = deviation(runs)
    return {
        f"{prefix}/std_dev_across_runs": std,
        f"{prefix}/std_err_across_runs": None if std is None else std / math.sqrt(len(runs)),
        f"{prefix}/avg_sample_std_dev": 100 * within,
    }


def _votes(scores: _Samples, answers: Integers) -> Metrics:
    voted = _running_votes(scores, answers)
    enough = ((k, scores.counts >= k) for k in range(1, scores.most + 1))
    votes = _Samples(voted, scores.starts, scores.counts)
    return {f"majority@{k}/{REWARD}": 100 * _mean(votes.nth(k - 1, chosen)) for k, chosen in enough}


def _running_votes(scores: _Samples, answers: Integers) -> Floats:
    """For every k, the reward of the most frequent (answer, reward) among the first k: their mean on a tie, 0 without any."""
    if scores.most <= _FEW_REPEATS and bool(np.all((scores.values == 0) | (scores.values == 1))):
        return _running_votes_of_zeros_and_ones(scores, answers)
    found: array[float] = array("d")
    numbers, rewards = array("q", answers.tobytes()), array("d", scores.values.tobytes())
    for start, count in zip(scores.starts.tolist(), scores.counts.tolist(), strict=True):
        found.extend(_votes_of_task(zip(numbers[start : start + count], rewards[start : start + count], strict=True)))
    return np.asarray(found)


def _running_votes_of_zeros_and_ones(scores: _Samples, answers: Integers) -> Floats:
    """The same for many tasks at once: sums of zeros and ones are exact in whatever order."""
    found = np.zeros(len(scores.values))
    for count in np.unique(scores.counts).tolist():
        starts = scores.starts[scores.counts == count]
        for begin in range(0, len(starts), _TASKS_AT_ONCE):
            places = starts[begin : begin + _TASKS_AT_ONCE, np.newaxis] + np.arange(count)
            found[places] = _votes_of_equal_tasks(answers[places], scores.values[places])
    return found


def _votes_of_equal_tasks(answers: Integers, rewards: Floats) -> Floats:
    """A row for each task, a column for each k."""
    tasks = np.arange(len(answers))
    is_vote = (answers != NO_ANSWER) & (answers != NO_ROW)
    # How often each vote was given so far, where it was given first.
    given = np.zeros(answers.shape, dtype=np.int32)
    found = np.zeros(answers.shape)
    for k in range(answers.shape[1]):
        is_same = (answers[:, : k + 1] == answers[:, k, np.newaxis]) & (rewards[:, : k + 1] == rewards[:, k, np.newaxis])
        given[tasks, is_same.argmax(axis=1)] += is_vote[:, k]
        is_leader = (given == given.max(axis=1, keepdims=True)) & (given > 0)
        leaders = is_leader.sum(axis=1)
        found[:, k] = np.where(is_leader, rewards, 0.0).sum(axis=1) / np.maximum(leaders, 1)
    return found


def _votes_of_task(votes: Iterable[tuple[int, float]]) -> list[float]:
    counts: dict[tuple[int, float], int] = {}
    most, result = 0, 0.0
    leaders: list[float] = []
    found: list[float] = []
    for vote in votes:
        if vote[0] not in (NO_ANSWER, NO_ROW):
            count = counts[vote] = counts.get(vote, 0) + 1
            if count > most:
                most, leaders, result = count, [vote[1]], vote[1]
            elif count == most:
                leaders.append(vote[1])
                result = mean_of(leaders)
        found.append(result)
    return found


def _each_repeat(scores: _Samples) -> list[float]:
    return [100 * _mean(scores.nth(index, scores.counts > index)) for index in range(scores.most)]

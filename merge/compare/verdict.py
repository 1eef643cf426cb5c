"""Whether a candidate differs from a base, and whether what was measured is enough to say so. Pure.

The unit is the task: its mean over repeats is one observation, since repeats of a task are no independent evidence. Tasks are
paired where both runs asked the same; otherwise the difference of two means is judged by Welch's interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from collector.text.counted import agreeing, counted
from merge.compare.load import Side
from merge.compare.settings import Change, changes_between
from merge.metrics.fields import REWARD
from merge.metrics.figures import mean_of
from merge.metrics.intervals import Interval, difference_interval, mean_interval

#: Fewer tasks say nothing that an interval by Student's t could hold.
FEWEST_TASKS: Final = 10
#: A task passes when its mean over repeats is above this.
PASSES_ABOVE: Final = 0.5


class Pairing(StrEnum):
    """How the difference was judged."""

    PAIRED = "paired by task"
    WELCH = "unpaired (Welch)"


class Verdict(StrEnum):
    """What the evidence says of the candidate's metric."""

    HIGHER = "higher"
    LOWER = "lower"
    NO_DIFFERENCE_SHOWN = "no difference shown"
    INSUFFICIENT = "insufficient evidence"


@dataclass(frozen=True, slots=True)
class MetricDifference:
    """One metric of both sides; ``delta`` is ``paired_candidate`` minus ``paired_base``, over the tasks that were compared."""

    metric: str
    #: Means over all rollouts of a side, as its metrics file has them.
    base: float | None
    candidate: float | None
    #: Means over tasks, each task one observation: those in both where tasks are paired, else each side's own. None: no task.
    paired_base: float | None
    paired_candidate: float | None
    delta: float | None
    interval: Interval | None
    tasks: int
    pairing: Pairing
    verdict: Verdict
    #: Why the evidence is insufficient, or how missing rollouts were dealt with; empty otherwise.
    reason: str = ""
    #: Why means over all rollouts differ from those over the compared tasks; empty where they are the same.
    means_reason: str = ""


@dataclass(frozen=True, slots=True)
class Flip:
    """A task that passes on one side only."""

    task: int
    base: float
    candidate: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """A candidate beside the base. ``flips`` are known only for paired tasks."""

    base: Side
    candidate: Side
    metrics: tuple[MetricDifference, ...]
    fixed: tuple[Flip, ...]
    broken: tuple[Flip, ...]
    is_paired: bool

    @property
    def changes(self) -> tuple[Change, ...] | None:
        """The settings that differ; None when one side's are not known."""
        return changes_between(self.base.settings, self.candidate.settings)

    @property
    def how(self) -> str:
        """How tasks were compared and, where they were not paired, why not."""
        if self.is_paired:
            return f"{Pairing.PAIRED}, one observation a task"
        return f"{Pairing.WELCH}, one observation a task: nothing shows that both runs asked the same tasks"

    @property
    def reward(self) -> MetricDifference | None:
        """The main metric, when a side has it."""
        return next((metric for metric in self.metrics if metric.metric == f"mean/{REWARD}"), None)


def compare(base: Side, candidate: Side, *, pair_by_index: bool = False) -> Comparison:
    """``candidate`` beside ``base``. With ``pair_by_index`` tasks of equal number are taken for the same without proof."""
    is_paired = pair_by_index or bool(base.source_digest and base.source_digest == candidate.source_digest)
    names = sorted({*base.means, *candidate.means}, key=lambda name: (name != REWARD, name))
    metrics = tuple(_difference(name, base, candidate, is_paired=is_paired) for name in names)
    both = _common(REWARD, base, candidate) if is_paired else []
    flips = [Flip(task, base.tasks[REWARD][task], candidate.tasks[REWARD][task]) for task in both]
    fixed = tuple(flip for flip in flips if flip.base <= PASSES_ABOVE < flip.candidate)
    broken = tuple(flip for flip in flips if flip.candidate <= PASSES_ABOVE < flip.base)
    return Comparison(base, candidate, metrics, fixed, broken, is_paired)


def _common(name: str, base: Side, candidate: Side) -> list[int]:
    return sorted(base.tasks.get(name, {}).keys() & candidate.tasks.get(name, {}).keys())


def _difference(name: str, base: Side, candidate: Side, *, is_paired: bool) -> MetricDifference:
    first, second = base.tasks.get(name, {}), candidate.tasks.get(name, {})
    # What only one side has is compared with nothing, and its own mean still says something.
    if is_paired and first and second:
        common = _common(name, base, candidate)
        first, second = {task: first[task] for task in common}, {task: second[task] for task in common}
        interval = mean_interval([second[task] - first[task] for task in common])
    else:
        interval = difference_interval(list(first.values()), list(second.values()))
    count, before, after = min(len(first), len(second)), _mean(first), _mean(second)
    whys = [_why_not_whole(*side, name) for side in (("base", base, first), ("candidate", candidate, second))]
    verdict, reason = _judged(name, base, candidate, interval, count)
    return MetricDifference(
        metric=f"mean/{name}",
        base=base.means.get(name),
        candidate=candidate.means.get(name),
        paired_base=before,
        paired_candidate=after,
        delta=None if before is None or after is None else after - before,
        interval=interval,
        tasks=count,
        pairing=Pairing.PAIRED if is_paired else Pairing.WELCH,
        verdict=verdict,
        reason=reason,
        means_reason="; ".join(why for why in whys if why),
    )


def _mean(tasks: Mapping[int, float]) -> float | None:
    return mean_of(list(tasks.values())) if tasks else None


def _why_not_whole(what: str, side: Side, compared: Mapping[int, float], name: str) -> str:
    """Why the mean over all rollouts of ``side`` is not that over its compared tasks; empty where they are the same."""
    whole, own = side.means.get(name), side.tasks.get(name, {})
    if whole is None or not own or _is_same(whole, _mean(compared)):
        return ""
    left_out = len(own) - len(compared)
    tasks = counted(left_out, "task", of=len(own))
    whys = [f"{tasks} of the {what} {agreeing(left_out, 'are')} not in both"] if left_out else []
    if not _is_same(whole, _mean(own)):
        whys.append(f"tasks of the {what} have different numbers of rollouts with a value")
    return ", and ".join(whys)


def _is_same(whole: float, over_tasks: float | None) -> bool:
    """Whether two sums of the same numbers, in another order, gave one mean."""
    return over_tasks is not None and math.isclose(whole, over_tasks, rel_tol=1e-9, abs_tol=1e-12)


def _judged(name: str, base: Side, candidate: Side, interval: Interval | None, tasks: int) -> tuple[Verdict, str]:
    if name not in base.means or name not in candidate.means:
        return Verdict.INSUFFICIENT, "only one side has it"
    if interval is None or tasks < FEWEST_TASKS:
        return Verdict.INSUFFICIENT, f"{counted(tasks, 'task')}, and fewer than {FEWEST_TASKS} say nothing"
    found = _sign(interval)
    incomplete = [text for text in map(_gap, ("base", "candidate"), (base, candidate)) if text]
    if not incomplete:
        return found, ""
    worst = _worst_case(base, candidate) if name == REWARD else None
    if worst is not None and found in (Verdict.HIGHER, Verdict.LOWER) and _sign(worst) is found:
        return found, f"{'; '.join(incomplete)}: it holds whatever they would have scored"
    return Verdict.INSUFFICIENT, "; ".join(incomplete)


def _sign(interval: Interval) -> Verdict:
    if interval.low > 0:
        return Verdict.HIGHER
    return Verdict.LOWER if interval.high < 0 else Verdict.NO_DIFFERENCE_SHOWN


def _gap(what: str, side: Side) -> str:
    if side.expected is None or side.scored is None:
        return f"the coverage of the {what} is not known"
    left = side.expected - side.scored
    rollouts = counted(left, "rollout", of=side.expected)
    return "" if side.is_complete else f"{rollouts} of the {what} {agreeing(left, 'have')} no score"


def _worst_case(base: Side, candidate: Side) -> Interval | None:
    """Between which values the difference of the means lies, whatever rollouts without a score would have got."""
    if base.bounds is None or candidate.bounds is None:
        return None
    return Interval(candidate.bounds[0] - base.bounds[1], candidate.bounds[1] - base.bounds[0])


def compare_all(base: Side, candidates: Sequence[Side], *, pair_by_index: bool = False) -> tuple[Comparison, ...]:
    """Each of ``candidates`` beside ``base``."""
    return tuple(compare(base, candidate, pair_by_index=pair_by_index) for candidate in candidates)

"""What only all rows together show: two rows of one rollout, and tasks whose repeats all fail. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from merge.health.checks import Check, Verdict, verdict_of
from merge.health.digest import Digest
from merge.health.rules import Finding

Name: TypeAlias = int | str


class Repeat(NamedTuple):
    """One repeat of a task; rows that claim to be the same one are merged."""

    verdict: Verdict
    is_policy_observed: bool
    successful_calls: int


class TaskView(NamedTuple):
    """One task. A flag is None where its check could not be evaluated; ``ignored`` checks are not in it."""

    repeats: Sequence[Repeat]
    flags: dict[Check, bool | None]


def number_tasks(digests: Iterable[Digest]) -> None:
    """Give each readable row that names no task its position as one."""
    for position, digest in enumerate(digests):
        if digest.is_readable and digest.task is None:
            digest.task = position


def mark_duplicates(digests: Iterable[Digest], ignored: frozenset[Check]) -> None:
    """Add a finding to every row whose (stage, task, repeat) another row has too."""
    if Check.DUPLICATE_IDENTITY in ignored:
        return
    seen: dict[tuple[Name | None, Name | None, Name | None], Digest] = {}
    copies: dict[int, list[Digest]] = defaultdict(list)
    for digest in digests:
        if digest.is_readable:
            first = seen.setdefault((digest.stage, digest.task, digest.repeat), digest)
            if first is not digest:
                copies[id(first)] = [*(copies[id(first)] or [first]), digest]
    for same in copies.values():
        for digest in same:
            finding = Finding(Check.DUPLICATE_IDENTITY, {"duplicate_count": len(same)})
            digest.findings = (*digest.findings, finding)


def in_order(digests: Iterable[Digest]) -> list[Digest]:
    """``digests`` by task, repeat and stage; rows that cannot be read come last."""
    return sorted(digests, key=_sort_key)


def view_tasks(ordered: Iterable[Digest], ignored: frozenset[Check]) -> dict[Name, TaskView]:
    """Every task of ``ordered`` digests with its repeats and flags, numbers first, then names."""
    views: dict[Name, TaskView] = {}
    for task, rows in groupby(ordered, key=attrgetter("task")):
        if task is not None:
            copies = [list(same) for _, same in groupby(rows, key=attrgetter("repeat"))]
            views[task] = _view(copies, ignored)
    return views


def _sort_key(digest: Digest) -> tuple[object, ...]:
    return (_order_of(digest.task), _order_of(digest.repeat), _order_of(digest.stage))


def _order_of(name: Name | None) -> tuple[int, int, str]:
    """Sorts numbers before names, and nothing last."""
    if name is None:
        return (2, 0, "")
    return (0, name, "") if isinstance(name, int) else (1, 0, name)


def _view(rows: Sequence[Sequence[Digest]], ignored: frozenset[Check]) -> TaskView:
    repeats = [_repeat(copies) for copies in rows]
    flags = {Check.TASK_UNHEALTHY: _is_unhealthy(repeats), Check.TASK_WITHOUT_SUCCESS: _is_without_success(repeats)}
    return TaskView(repeats, {check: flag for check, flag in flags.items() if check not in ignored})


def _repeat(copies: Sequence[Digest]) -> Repeat:
    if len(copies) == 1:
        (only,) = copies
        verdict = verdict_of(len(only.findings), only.unobserved)
        return Repeat(verdict, only.is_policy_observed, only.successful_calls)
    verdicts = [verdict_of(len(copy.findings), copy.unobserved) for copy in copies]
    return Repeat(
        verdicts[0] if verdicts.count(verdicts[0]) == len(verdicts) else Verdict.UNOBSERVED,
        all(copy.is_policy_observed for copy in copies),
        max(copy.successful_calls for copy in copies),
    )


def _is_unhealthy(repeats: Sequence[Repeat]) -> bool | None:
    judged = [repeat for repeat in repeats if repeat.verdict is not Verdict.UNOBSERVED]
    # One bad repeat is an accident of that repeat; two of two are one of the task.
    return all(repeat.verdict is Verdict.UNHEALTHY for repeat in judged) if len(judged) >= 2 else None


def _is_without_success(repeats: Sequence[Repeat]) -> bool | None:
    if not all(repeat.is_policy_observed for repeat in repeats):
        return None
    return not any(repeat.successful_calls for repeat in repeats)

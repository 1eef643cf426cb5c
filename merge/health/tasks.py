"""What only all rows together show: two rows of one rollout, and tasks whose repeats all fail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from operator import le
from typing import Any, NamedTuple

from merge.health.checks import Check, Verdict
from merge.health.rules import Finding
from merge.health.table import KINDS, NUMBER_LIMIT, Kind, Name, Table, number_of


class TaskView(NamedTuple):
    """One task. Rows that claim to be the same repeat count as one."""

    #: How many repeats have each verdict, in the order of Verdict.
    verdicts: tuple[int, ...]
    #: The checks of tasks that found something, and those that could not be evaluated; ignored ones are in neither.
    flags: tuple[Check, ...]
    blind: tuple[Check, ...]


def number_tasks(table: Table) -> None:
    """Give each readable row that names no task its position as one."""
    for position, task in enumerate(table.tasks):
        if task is None and KINDS[table.outcomes[position].kind].is_readable:
            table.tasks[position] = position


def arrange(table: Table) -> None:
    """Sort the rows by task, repeat and stage, numbers before names; rows that cannot be read come last."""
    keys = [_sort_keys(column) for column in (table.tasks, table.repeats, table.stages)]
    # Rows mostly stand in order, and an order of their positions weighs as much as all else that is kept of them.
    if all(map(le, zip(*keys, strict=True), islice(zip(*keys, strict=True), 1, None))):
        return
    order = list(range(len(table)))
    # Each sort keeps what those before it made of equal rows.
    for column in reversed(keys):
        order.sort(key=column.__getitem__)
    table.arrange(order)


def mark_duplicates(arranged: Table, ignored: frozenset[Check]) -> int:
    """Add a finding to every row whose (stage, task, repeat) another row has too. Returns how many rows that are."""
    if Check.DUPLICATE_IDENTITY in ignored:
        return 0
    marked = 0
    for same in _copies(arranged):
        finding = Finding(Check.DUPLICATE_IDENTITY, {"duplicate_count": len(same)})
        for i in same:
            arranged.outcomes[i] = arranged.outcomes[i].with_finding(finding)
        marked += len(same)
    return marked


def view_tasks(arranged: Table, ignored: frozenset[Check]) -> dict[Name, TaskView]:
    """Every task, numbers first, then names. Tasks whose repeats came out alike share one view."""
    kinds = arranged.kinds()
    views: dict[Name, TaskView] = {}
    shared: dict[bytes, TaskView] = {}
    end = 0
    for task, rows in groupby(arranged.tasks):
        begin, end = end, end + len(list(rows))
        if task is not None:
            repeats = _one_a_repeat(kinds[begin:end], arranged.repeats[begin:end])
            views[task] = shared.get(repeats) or shared.setdefault(repeats, _view([KINDS[kind] for kind in repeats], ignored))
    return views


def _sort_keys(column: Sequence[Name | None]) -> Sequence[Any]:
    kinds = set(map(type, column))
    if kinds <= {int}:
        return column
    if str not in kinds:
        # Numbers where there can be: they weigh a tenth of what tuples do.
        return [NUMBER_LIMIT if name is None else name for name in column]
    return list(map(_order_of, column))


def _order_of(name: Name | None) -> tuple[int, int, str]:
    """Sorts numbers before names, and nothing last."""
    if name is None:
        return (2, 0, "")
    return (0, name, "") if isinstance(name, int) else (1, 0, name)


def _copies(arranged: Table) -> Iterator[range]:
    """The positions of rows that name the same rollout, for each rollout with more than one."""
    tasks, repeats, stages = arranged.tasks, arranged.repeats, arranged.stages
    # The task last: rows that cannot be read have none, and name nothing.
    again = [
        i
        for i in range(1, len(arranged))
        if repeats[i] == repeats[i - 1] and stages[i] == stages[i - 1] and tasks[i] == tasks[i - 1] is not None
    ]
    first = 0
    for i in range(1, len(again) + 1):
        if i == len(again) or again[i] != again[i - 1] + 1:
            yield range(again[first] - 1, again[i - 1] + 1)
            first = i


def _one_a_repeat(kinds: bytes, repeats: Sequence[Name | None]) -> bytes:
    """One kind a repeat, where each row has a kind and a repeat, and those of a repeat stand together."""
    if len(set(repeats)) == len(repeats):
        return kinds
    found: list[int] = []
    end = 0
    for _, same in groupby(repeats):
        begin, end = end, end + len(list(same))
        found.append(_merged([KINDS[kind] for kind in kinds[begin:end]]))
    return bytes(found)


def _merged(copies: Sequence[Kind]) -> int:
    verdicts = {copy.verdict for copy in copies}
    return number_of(
        Kind(
            verdicts.pop() if len(verdicts) == 1 else Verdict.UNOBSERVED,
            is_readable=True,
            is_policy_observed=all(copy.is_policy_observed for copy in copies),
            has_success=any(copy.has_success for copy in copies),
        )
    )


def _view(repeats: Sequence[Kind], ignored: frozenset[Check]) -> TaskView:
    found = {Check.TASK_UNHEALTHY: _is_unhealthy(repeats), Check.TASK_WITHOUT_SUCCESS: _is_without_success(repeats)}
    verdicts = [repeat.verdict for repeat in repeats]
    return TaskView(
        tuple(map(verdicts.count, Verdict)),
        flags=tuple(check for check, flag in found.items() if flag and check not in ignored),
        blind=tuple(check for check, flag in found.items() if flag is None and check not in ignored),
    )


def _is_unhealthy(repeats: Sequence[Kind]) -> bool | None:
    judged = [repeat for repeat in repeats if repeat.verdict is not Verdict.UNOBSERVED]
    # One bad repeat is an accident of that repeat; two of two are one of the task.
    return all(repeat.verdict is Verdict.UNHEALTHY for repeat in judged) if len(judged) >= 2 else None


def _is_without_success(repeats: Sequence[Kind]) -> bool | None:
    if not all(repeat.is_policy_observed for repeat in repeats):
        return None
    return not any(repeat.has_success for repeat in repeats)

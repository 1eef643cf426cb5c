"""The two reports of a health check as bytes: counts over the run and its tasks, and one verdict a row. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import orjson

from collector.formats import rows
from merge.health.checks import ROLLOUT_CHECKS, TASK_CHECKS, Check, Verdict, names_in
from merge.health.table import KINDS, Name, Table
from merge.health.tally import Tally
from merge.health.tasks import TaskView


def summarize(table: Table, tally: Tally, tasks: Mapping[Name, TaskView], ignored: frozenset[Check]) -> dict[str, Any]:
    """The content of ``<stem>_health.json``; its members are those of NeMo Gym's quality summary.

    Tasks that came out alike share one member, which nobody may change.
    """
    views = Counter(tasks.values())
    issues = tally.issues.copy()
    for view, count in views.items():
        issues.update(dict.fromkeys(view.flags, count))
    shown = {view: _task(view) for view in views}
    return {
        "run": {
            "ignored_checks": sorted(ignored),
            "artifacts": {
                "records": len(table),
                "captures": tally.captures,
                "coverage": _coverage(len(table), tally, views, ignored),
            },
            "verdicts": _verdicts(table),
            "issues": {check.value: issues[check] for check in Check},
            "stats": _stats(tally),
        },
        "tasks": {str(name): shown[view] for name, view in tasks.items()},
    }


def _verdicts(table: Table) -> dict[str, int]:
    counts = dict.fromkeys(Verdict, 0)
    for number, count in Counter(table.kinds()).items():
        counts[KINDS[number].verdict] += count
    return {verdict.value: count for verdict, count in counts.items()}


def encode_summary(summary: Mapping[str, Any]) -> bytes:
    """The file's bytes: indented JSON with a final newline, since people read it."""
    return orjson.dumps(summary, option=orjson.OPT_INDENT_2) + b"\n"


def encode_verdicts(arranged: Table) -> Iterator[bytes]:
    """The lines of ``<stem>_verdicts.jsonl``, one a row."""
    columns = (arranged.tasks, arranged.repeats, arranged.stages, arranged.rollout_ids, arranged.outcomes)
    for task, repeat, stage, rollout_id, outcome in zip(*columns, strict=True):
        kind = KINDS[outcome.kind]
        entry: dict[str, Any] = {
            rows.TASK_INDEX: task,
            rows.ROLLOUT_INDEX: repeat,
            "rollout_id": rollout_id or (f"{task}-{repeat}" if kind.is_readable else None),
            "verdict": kind.verdict,
            "findings": orjson.Fragment(b"[%b]" % outcome.findings),
            "unobserved": _encoded_names(outcome.unobserved),
        }
        if stage is not None:
            entry["stage_index"] = stage
        yield orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE)


@cache
def _encoded_names(bits: int) -> orjson.Fragment:
    return orjson.Fragment(orjson.dumps(names_in(bits)))


def _coverage(
    rows_in_all: int, tally: Tally, tasks: Mapping[TaskView, int], ignored: frozenset[Check]
) -> dict[str, dict[str, int]]:
    """How often each check was evaluated, lacked its evidence, or was left out. ``tasks``: how many have each view."""
    blind = Counter[Check]()
    for bits, count in tally.blind.items():
        blind.update(dict.fromkeys(names_in(bits), count))
    for view, count in tasks.items():
        blind.update(dict.fromkeys(view.blind, count))
    totals = {**dict.fromkeys(ROLLOUT_CHECKS, rows_in_all), **dict.fromkeys(TASK_CHECKS, sum(tasks.values()))}
    return {str(check): _counts(total, blind[check], is_ignored=check in ignored) for check, total in totals.items()}


def _counts(total: int, unobserved: int, *, is_ignored: bool) -> dict[str, int]:
    if is_ignored:
        return {"evaluated": 0, "unobserved": 0, "ignored": total}
    return {"evaluated": total - unobserved, "unobserved": unobserved, "ignored": 0}


def _stats(tally: Tally) -> dict[str, Any]:
    return {
        "model_call_errors": {
            "total": tally.failed_calls,
            "by_status": dict(sorted(tally.failed_by_status.items())),
            "rollouts_affected": tally.rows_with_failures,
            "ended_on_error": tally.ended_on_error,
        },
        "duplicated_calls": {"replayed": tally.replayed_calls, "rollouts": tally.rows_with_replays},
        "tokens": {
            "prompt": tally.prompt,
            "completion": tally.completion,
            "capture_prompt": tally.capture_prompt,
            "capture_completion": tally.capture_completion,
        },
    }


def _task(view: TaskView) -> dict[str, Any]:
    counts = {verdict.value: count for verdict, count in zip(Verdict, view.verdicts, strict=True)}
    return {"repeats": sum(view.verdicts), **counts, "flags": list(view.flags)}

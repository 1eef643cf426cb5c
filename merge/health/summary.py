"""The two reports of a health check as bytes: counts over the run and its tasks, and one verdict a row. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from collector import rows
from merge.health.checks import ROLLOUT_CHECKS, TASK_CHECKS, Check, Verdict, names_in, verdict_of
from merge.health.digest import Digest
from merge.health.tasks import Name, TaskView


def summarize(digests: Sequence[Digest], tasks: Mapping[Name, TaskView], ignored: frozenset[Check]) -> dict[str, Any]:
    """The content of ``<stem>_health.json``; its members are those of NeMo Gym's quality summary."""
    verdicts = _verdicts(digests)
    issues = Counter(finding.check for digest in digests for finding in digest.findings)
    issues.update(check for task in tasks.values() for check, flag in task.flags.items() if flag)
    return {
        "run": {
            "ignored_checks": sorted(ignored),
            "artifacts": {
                "records": len(digests),
                "captures": sum(digest.has_capture for digest in digests),
                "coverage": _coverage(digests, tasks, ignored),
            },
            "verdicts": {verdict.value: verdicts[verdict] for verdict in Verdict},
            "issues": {check.value: issues[check] for check in Check},
            "stats": _stats(digests),
        },
        "tasks": {str(name): _task(task) for name, task in tasks.items()},
    }


def _verdicts(digests: Sequence[Digest]) -> Counter[Verdict]:
    kinds = Counter((bool(digest.findings), bool(digest.unobserved)) for digest in digests)
    counts = Counter[Verdict]()
    for (has_findings, has_unobserved), count in kinds.items():
        counts[verdict_of(has_findings, has_unobserved)] += count
    return counts


def encode_summary(summary: Mapping[str, Any]) -> bytes:
    """The file's bytes: indented JSON with a final newline, since people read it."""
    return orjson.dumps(summary, option=orjson.OPT_INDENT_2) + b"\n"


def encode_verdicts(ordered: Iterable[Digest]) -> Iterator[bytes]:
    """The lines of ``<stem>_verdicts.jsonl``, one a digest."""
    for digest in ordered:
        entry: dict[str, Any] = {
            rows.TASK_INDEX: digest.task,
            rows.ROLLOUT_INDEX: digest.repeat,
            "rollout_id": digest.rollout_id or (f"{digest.task}-{digest.repeat}" if digest.is_readable else None),
            "verdict": verdict_of(len(digest.findings), digest.unobserved),
            "findings": [_finding(finding.check, finding.locator, finding.detail) for finding in digest.findings],
            "unobserved": names_in(digest.unobserved),
        }
        if digest.stage is not None:
            entry["stage_index"] = digest.stage
        yield orjson.dumps(entry) + b"\n"


def _finding(check: str, locator: dict[str, Any] | None, detail: dict[str, Any]) -> dict[str, Any]:
    return {"check": check, **({"locator": locator} if locator else {}), "detail": detail}


def _coverage(
    digests: Sequence[Digest], tasks: Mapping[Name, TaskView], ignored: frozenset[Check]
) -> dict[str, dict[str, int]]:
    """How often each check was evaluated, lacked its evidence, or was left out."""
    missing = Counter[Check]()
    for bits, count in Counter(digest.unobserved for digest in digests).items():
        missing.update(dict.fromkeys(names_in(bits), count))
    found = {check: _counts(len(digests), missing[check], is_ignored=check in ignored) for check in ROLLOUT_CHECKS}
    for check in TASK_CHECKS:
        blind = sum(task.flags.get(check, False) is None for task in tasks.values())
        found[check] = _counts(len(tasks), blind, is_ignored=check in ignored)
    return {str(check): counts for check, counts in found.items()}


def _counts(total: int, unobserved: int, *, is_ignored: bool) -> dict[str, int]:
    if is_ignored:
        return {"evaluated": 0, "unobserved": 0, "ignored": total}
    return {"evaluated": total - unobserved, "unobserved": unobserved, "ignored": 0}


def _stats(digests: Sequence[Digest]) -> dict[str, Any]:
    by_status = Counter[str]()
    for digest in digests:
        by_status.update(digest.failed_by_status or {})
    sums = [sum(column) for column in zip(*(digest.tokens for digest in digests), strict=True)] or [0, 0, 0, 0]
    names = ("prompt", "completion", "capture_prompt", "capture_completion")
    return {
        "model_call_errors": {
            "total": sum(digest.failed_calls for digest in digests),
            "by_status": dict(sorted(by_status.items())),
            "rollouts_affected": sum(digest.failed_calls > 0 for digest in digests),
            "ended_on_error": sum(digest.ended_on_error for digest in digests),
        },
        "duplicated_calls": {
            "replayed": sum(digest.replayed_calls for digest in digests),
            "rollouts": sum(digest.replayed_calls > 0 for digest in digests),
        },
        "tokens": dict(zip(names, sums, strict=True)),
    }


def _task(task: TaskView) -> dict[str, Any]:
    verdicts = [repeat.verdict for repeat in task.repeats]
    flags = [check for check, flag in task.flags.items() if flag]
    return {"repeats": len(task.repeats), **{verdict.value: verdicts.count(verdict) for verdict in Verdict}, "flags": flags}

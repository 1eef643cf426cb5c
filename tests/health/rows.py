"""Rows with and without faults, as plain objects, and what a check says of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from collector.artifacts import RunArtifacts
from merge.health.checks import Check
from merge.health.pool import digest_slices
from merge.health.run import HealthReport, check_health
from merge.health.slices import Slice
from merge.health.table import KINDS, Name, Outcome

MODEL = {"type": "openai", "name": "m"}


def response(text: str = "four", **changed: Any) -> dict[str, Any]:
    """A complete Responses object."""
    return {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "text": {"format": {"type": "text"}},
        "reasoning": {"effort": "high", "summary": "detailed"},
        "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}],
        "usage": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7},
        **changed,
    }


def row(task: int = 0, repeat: int = 0, **changed: Any) -> dict[str, Any]:
    """A row with nothing but its response."""
    return {"_ng_task_index": task, "_ng_rollout_index": repeat, "response": response(), "reward": 1.0, **changed}


def call(call_id: str = "c0", **changed: Any) -> dict[str, Any]:
    """A captured model call that went well; ``metadata`` and ``tokens`` are merged into its parts."""
    metadata, tokens = changed.pop("metadata", {}), changed.pop("tokens", {})
    return {
        "model_call_id": call_id,
        "started_at": 1.0,
        "response": response(),
        "response_metadata": {"response_id": f"r-{call_id}", "model_ref": MODEL, "status_code": 200, **metadata},
        "token_stats": {"prompt_tokens": 5, "completion_tokens": 2, **tokens},
        **changed,
    }


def turn(number: int = 1, *call_ids: str, answer: Any = "four") -> dict[str, Any]:
    """A turn that refers to calls by their ids."""
    references = [{"model_call_id": call_id} for call_id in call_ids]
    return {"invocation_id": "i", "turn_no": number, "answer": answer, "model_calls": references}


def traced(task: int = 0, repeat: int = 0, **changed: Any) -> dict[str, Any]:
    """A row with a trajectory of one turn and one call; ``changed`` replaces parts of the trajectory."""
    trajectory = {
        "schema_version": "1.0",
        "task_id": str(task),
        "rollout_id": f"{task}-{repeat}",
        "turns": [turn(1, "c0")],
        "model_calls": [call("c0")],
        "invocations": [],
        "gaps": [],
        **changed,
    }
    return row(task, repeat, ng_trajectory=trajectory)


def write(path: Path, rows: Iterable[object]) -> RunArtifacts:
    """A legacy file of ``rows``; bytes are written as they are."""
    lines = (item if isinstance(item, bytes) else json.dumps(item).encode() + b"\n" for item in rows)
    path.write_bytes(b"".join(lines))
    return RunArtifacts(path)


def check(directory: Path, *rows: object, ignored: Iterable[Check] = ()) -> HealthReport:
    """The report over a legacy file of ``rows``."""
    return check_health(write(directory / "rollouts.jsonl", rows), ignored=frozenset(ignored), workers=1)


def verdicts(report: HealthReport) -> list[dict[str, Any]]:
    """The lines of the verdicts file."""
    return [json.loads(line) for line in report.verdicts.read_bytes().splitlines()]


def issues(report: HealthReport) -> dict[str, int]:
    """The checks with findings."""
    return {name: count for name, count in report.summary["run"]["issues"].items() if count}


class Digested(NamedTuple):
    """What became of one row."""

    task: Name | None
    is_readable: bool
    findings: list[dict[str, Any]]


def digested(slices: Iterable[Slice], *, workers: int = 1) -> list[Digested]:
    """Each row of ``slices`` after all of them were checked."""
    return [
        Digested(task, KINDS[outcome.kind].is_readable, findings_of(outcome))
        for part in digest_slices(slices, frozenset(), workers)
        for task, outcome in zip(part.table.tasks, part.table.outcomes, strict=True)
    ]


def findings_of(outcome: Outcome) -> list[dict[str, Any]]:
    """The findings of one row as the report has them."""
    return json.loads(b"[%b]" % outcome.findings)

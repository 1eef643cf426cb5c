"""Rows as they are written: what an attempt left, as a line of the main file or of the sidecar.

A result row is the materialized input row, the answer, the verdict and the stamps. Input bytes are spliced in as they
stand, so that nothing a user wrote changes on its way through; only keys that belong to the result are never the input's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from collector import jsonl
from collector.formats import rows
from collector.formats.failure_record import record_of
from collector.outcome_checks import RESULT_KEYS
from collector.outcomes import BODY_LIMIT, Completed, Failure, FailureClass, ServedBy


def result_line(source: bytes, row: Mapping[str, Any], done: Completed, *, run_id: str, session: int, attempt: int) -> bytes:
    """The main-file row of a completed attempt. ``source`` is the inventory line that ``row`` was parsed from."""
    verdict = done.verdict
    added: dict[str, Any] = dict(verdict.extra)
    if done.answer.response:
        added["response"] = done.answer.response
    if verdict.reward is not None:
        added["reward"] = verdict.reward
    elif not verdict.masked:
        added["execute_only"] = True
    added["mask_sample"] = verdict.masked
    if verdict.kind is not None or verdict.reason is not None:
        added["failure_kind"] = verdict.kind
        added["failure_reason"] = verdict.reason
    stamped = {**added, **_stamps(run_id, session, attempt), **_server_stamps(done.served_by)}
    if done.row_keys is not None:
        return jsonl.dumps({**{key: row[key] for key in row if key in done.row_keys}, **stamped}) + b"\n"
    return _splice(source, row, stamped)


def failure_line(
    source: bytes,
    row: Mapping[str, Any],
    failure: Failure,
    *,
    rollout_id: str,
    run_id: str,
    session: int,
    attempt: int,
) -> bytes:
    """The sidecar row of a failed attempt: the task's own fields, the record, and NeMo Gym's aliases beside it."""
    record = record_of(failure, rollout_id=rollout_id, attempt=attempt, run_id=run_id)
    added: dict[str, Any] = {
        **failure.extra,
        **{rows.FAILURE_PREFIX + name: value for name, value in failure.evidence.items()},
        rows.FAILURE_CLASS: failure.failure_class,
        rows.FAILURE_TERMINAL: failure.terminal,
        rows.FAILURE_TYPE: failure.exception_type,
        rows.FAILURE_MESSAGE: failure.reason,
        rows.FAILURE_HTTP_STATUS: failure.http_status,
        rows.FAILURE_RESPONSE_BODY: _cut(failure.response_body),
        "failure_kind": failure.kind,
        "failure_reason": failure.reason,
        rows.FAILURE_RECORD: msgspec.to_builtins(record),
    }
    if failure.stage is not None:
        added[rows.FAILURE_STAGE] = failure.stage.value
    if failure.response is not None:
        added["response"] = failure.response
    if failure.failure_class == FailureClass.JUDGE_FAILED:
        added.setdefault(rows.FAILURE_JUDGE_ERROR, failure.reason)
    if failure.reuse_deliverable:
        added[rows.REUSE] = True
    return _splice(source, row, {**added, **_stamps(run_id, session, attempt), **_server_stamps(failure.served_by)})


def _stamps(run_id: str, session: int, attempt: int) -> dict[str, Any]:
    stamps: dict[str, Any] = {rows.RUN_ID: run_id, rows.SESSION: session}
    # Attempt 0 stays unstamped, as NeMo Gym writes it.
    if attempt:
        stamps[rows.ATTEMPT_INDEX] = attempt
    return stamps


def _server_stamps(served_by: ServedBy | None) -> dict[str, Any]:
    if served_by is None:
        return {}
    stamps: dict[str, Any] = {rows.ENVIRONMENT_SERVER: served_by.server, rows.RESULT_TYPE: served_by.result_type}
    return stamps if served_by.task_id is None else {**stamps, rows.TASK_ID: served_by.task_id}


def _splice(source: bytes, row: Mapping[str, Any], added: dict[str, Any]) -> bytes:
    if added.keys().isdisjoint(row) and RESULT_KEYS.isdisjoint(row):
        return source.rstrip()[:-1] + b"," + jsonl.dumps(added)[1:] + b"\n"
    # A dataset's own `reward` would read as a score of an attempt that has none.
    kept = {key: value for key, value in row.items() if key not in RESULT_KEYS}
    return jsonl.dumps({**kept, **added}) + b"\n"


def _cut(body: str | None) -> str | None:
    if body is None or len(body) <= BODY_LIMIT:
        return body
    return body[:BODY_LIMIT] + "…"

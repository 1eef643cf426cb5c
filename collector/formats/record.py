"""From an outcome to what is recorded of it: the draft of its event and the line of its row. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from collector.formats import row_lines
from collector.formats.events import Failed, OmittedEvent, Success
from collector.outcomes import Completed, Delivery, Failure, FailureClass, FailureKind, Omitted, Stage


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One dispatched try: which, and the materialized row it was dispatched with."""

    index: int
    number: int
    rollout_id: str
    run_id: str
    session: int
    source: bytes
    row: dict[str, Any]


class Record(msgspec.Struct, frozen=True):
    """What goes to disk for one outcome; the commit fills in the place of the row."""

    draft: Success | Failed | OmittedEvent
    #: None for what leaves no row.
    line: bytes | None


def record(attempt: Attempt, outcome: Completed | Failure | Omitted, elapsed_s: float) -> Record:
    """The record of ``outcome``. A result that has no JSON becomes a failure, since it could not be read back."""
    if isinstance(outcome, Omitted):
        return Record(_omitted(attempt, outcome), None)
    if isinstance(outcome, Failure):
        return _any_failure(attempt, outcome, elapsed_s)
    try:
        line = row_lines.result_line(
            attempt.source, attempt.row, outcome, run_id=attempt.run_id, session=attempt.session, attempt=attempt.number
        )
    except (ValueError, TypeError) as error:
        return _failure(attempt, replace(_unwritable(error), served_by=outcome.served_by), elapsed_s)
    verdict = outcome.verdict
    draft = Success(
        **_common(attempt, elapsed_s), reward=verdict.reward, masked=verdict.masked, truncated=outcome.answer.truncated
    )
    return Record(draft, line)


def _any_failure(attempt: Attempt, failure: Failure, elapsed_s: float) -> Record:
    try:
        return _failure(attempt, failure, elapsed_s)
    except (ValueError, TypeError):
        # Only what the other side gave can have no JSON; without it the failure is still one.
        return _failure(attempt, replace(failure, response=None, extra={}, evidence={}), elapsed_s)


def _failure(attempt: Attempt, failure: Failure, elapsed_s: float) -> Record:
    line = row_lines.failure_line(
        attempt.source,
        attempt.row,
        failure,
        rollout_id=attempt.rollout_id,
        run_id=attempt.run_id,
        session=attempt.session,
        attempt=attempt.number,
    )
    draft = Failed(
        **_common(attempt, elapsed_s),
        failure_class=failure.failure_class,
        kind=failure.kind,
        terminal=failure.terminal,
        reason=failure.reason,
    )
    return Record(draft, line)


def _omitted(attempt: Attempt, outcome: Omitted) -> OmittedEvent:
    return OmittedEvent(
        run_id=attempt.run_id,
        session=attempt.session,
        seq=-1,
        at="",
        rollout_id=attempt.rollout_id,
        attempt_index=attempt.number,
        reason=outcome.reason,
    )


def _common(attempt: Attempt, elapsed_s: float) -> dict[str, Any]:
    return {
        "run_id": attempt.run_id,
        "session": attempt.session,
        "seq": -1,
        "at": "",
        "rollout_id": attempt.rollout_id,
        "attempt_index": attempt.number,
        "offset": -1,
        "length": -1,
        "checksum": 0,
        "elapsed_s": round(elapsed_s, 3),
    }


def _unwritable(error: Exception) -> Failure:
    return Failure(
        failure_class=FailureClass.AGENT_RUN_ERROR,
        kind=FailureKind.VERIFIER_ERROR,
        reason=f"the result cannot be written as JSON: {error}",
        exception_type="InvalidRolloutResult",
        delivery=Delivery.DELIVERED,
        stage=Stage.VERIFICATION,
    )

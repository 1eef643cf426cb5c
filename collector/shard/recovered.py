"""The events that rows should have had: a crash came between a row and its event, and the row says all of it."""

from __future__ import annotations

import zlib
from typing import Any

from collector.formats import rows
from collector.formats.events import Failed, Success
from collector.formats.failure_record import FailureRecord
from collector.formats.rows import RowStamp


def told_by_row(stamp: RowStamp, offset: int, line: bytes, run_id: str) -> dict[str, Any]:
    """The members of an event that every row tells; its session, number and time are known where it is written."""
    return {
        "run_id": run_id,
        "session": -1,
        "seq": -1,
        "at": "",
        "rollout_id": stamp.rollout_id,
        "attempt_index": stamp.attempt,
        "offset": offset,
        "length": len(line),
        "checksum": zlib.crc32(line),
    }


def success_event(stamp: RowStamp, offset: int, line: bytes, run_id: str) -> Success:
    """The event that a main-file row should have had. Raises ValueError when the row is no result."""
    if stamp.failure_class is not None:
        raise ValueError("a failed attempt in the file of results")
    saved = rows.parse_verdict(line)
    return Success(
        **told_by_row(stamp, offset, line, run_id),
        reward=saved.reward,
        masked=saved.mask_sample,
        truncated=saved.is_truncated,
        recovered=True,
    )


def failed_event(record: FailureRecord, stamp: RowStamp, offset: int, line: bytes, run_id: str) -> Failed:
    """The event that a sidecar row should have had."""
    return Failed(
        **told_by_row(stamp, offset, line, run_id),
        failure_class=stamp.failure_class or record.failure.failure_kind or "agent_request_failed",
        kind=record.failure.failure_kind,
        terminal=record.failure.terminal,
        reason=record.failure.failure_reason,
        recovered=True,
    )

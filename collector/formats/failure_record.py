"""The structured record of a failed attempt (format 1), kept in its sidecar row and validated on write and on read."""

from __future__ import annotations

from typing import Final

import msgspec

from collector.outcomes import REASON_LIMIT, Delivery, Failure, FailureSource, Stage

FORMAT: Final = 1


class EpisodeId(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One attempt of one rollout."""

    rollout_id: str
    attempt: int


class EpisodeFailure(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the producer says went wrong. ``failure_reason`` is the canonical name; ``message`` is refused."""

    failure_reason: str
    terminal: bool
    failure_kind: str | None = None
    stage: Stage | None = None


class FailureRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A failed attempt, who says so, and whether its request reached the other side."""

    schema_version: int = FORMAT
    episode_id: EpisodeId
    run_id: str
    source: FailureSource
    delivery: Delivery
    failure: EpisodeFailure
    http_status: int | None = None
    exception_type: str | None = None

    def check(self) -> None:
        """Raise ValueError for a record that its own rules exclude."""
        if self.schema_version != FORMAT:
            raise ValueError(f"failure record format {self.schema_version} is not supported")
        if self.source is FailureSource.ENVIRONMENT and self.delivery is not Delivery.DELIVERED:
            raise ValueError("a failure reported by the environment was delivered to it")
        if len(self.failure.failure_reason) > REASON_LIMIT:
            raise ValueError(f"failure_reason is longer than {REASON_LIMIT} characters")
        if self.http_status is not None and not 100 <= self.http_status <= 599:
            raise ValueError(f"HTTP status {self.http_status} does not exist")


def record_of(failure: Failure, *, rollout_id: str, attempt: int, run_id: str) -> FailureRecord:
    """The record to save for ``failure``; it has passed ``check``."""
    record = FailureRecord(
        episode_id=EpisodeId(rollout_id, attempt),
        run_id=run_id,
        source=failure.source,
        delivery=failure.delivery,
        failure=EpisodeFailure(failure.reason, failure.terminal, failure.kind, failure.stage),
        http_status=failure.http_status,
        exception_type=None if failure.exception_type is None else failure.exception_type[:REASON_LIMIT],
    )
    record.check()
    return record

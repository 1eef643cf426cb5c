"""What is told of one rollout as frozen values, and the pure fold that makes them from the journal's events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from typing import Any, TypeAlias

from collector.formats.events import (
    Dispatched,
    Event,
    Failed,
    Lost,
    Migrated,
    OmittedEvent,
    SessionEnded,
    SessionStarted,
    Success,
)
from collector.outcomes import RolloutState
from collector.verifiers.judge_saved import JudgeView

Outcome: TypeAlias = Success | Failed | Migrated | OmittedEvent


class AttemptEnd(StrEnum):
    """How an attempt ended, as far as anybody knows."""

    MEASURED = "measured"
    MASKED = "masked"
    UNSCORED = "unscored"
    FAILED = "failed"
    OMITTED = "omitted"
    INTERRUPTED = "interrupted"
    IN_FLIGHT = "in_flight"


@dataclass(frozen=True, slots=True)
class FailureView:
    """Why an attempt failed."""

    failure_class: str
    kind: str | None
    reason: str
    terminal: bool
    http_status: int | None = None
    exception_type: str | None = None
    stage: str | None = None


@dataclass(frozen=True, slots=True)
class SessionView:
    """The collector that an attempt belonged to. ``ended`` is None when it never said why it let go."""

    number: int
    host: str
    pid: int
    started_at: str
    job_id: str | None
    restart_count: int | None
    lock: str | None
    ended: str | None
    ended_at: str | None


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One dispatched try. Times are UTC in ISO 8601; ``elapsed_s`` is what the collector measured, without queueing."""

    number: int
    session: SessionView
    dispatched_at: str
    end: AttemptEnd
    ended_at: str | None = None
    elapsed_s: float | None = None
    reward: float | None = None
    truncated: bool = False
    #: Its outcome was written by a later session, from a row that had lost its event.
    recovered: bool = False
    #: Why there is no outcome, or none that counts.
    remark: str | None = None
    failure: FailureView | None = None
    judge: JudgeView | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """All attempts of one rollout in order, its state under the retry settings asked for, and what comes next."""

    rollout_id: str
    run_id: str
    state: RolloutState
    attempts: tuple[AttemptView, ...]
    next_step: str
    #: In flight each time its collector died, never with an outcome.
    is_suspect: bool

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON values; absent values are null."""
        return _plain(self)


def attempts_of(
    history: Iterable[Event],
    failures: Mapping[int, FailureView],
    *,
    judges: Mapping[int, JudgeView] | None = None,
    live_session: int | None = None,
) -> tuple[AttemptView, ...]:
    """The attempts that ``history`` (every session's events and those of one rollout, in journal order) tells of. Pure.

    ``failures`` has what the failures file says by attempt, and ``judges`` what a row says of its judge; ``live_session`` is
    the one that holds the lock now.
    """
    told = _Told()
    for event in history:
        told.add(event)
    views = (_attempt_view(event, told, failures.get(event.attempt_index), live_session) for event in told.dispatched)
    found = judges or {}
    return tuple(replace(view, judge=found[view.number]) if view.number in found else view for view in views)


@dataclass(slots=True)
class _Told:
    """The events of one rollout, sorted by attempt, with a remark where they need one."""

    started: dict[int, SessionStarted] = field(default_factory=dict[int, SessionStarted])
    ended: dict[int, SessionEnded] = field(default_factory=dict[int, SessionEnded])
    dispatched: list[Dispatched] = field(default_factory=list[Dispatched])
    outcomes: dict[int, Outcome] = field(default_factory=dict[int, Outcome])
    remarks: dict[int, str] = field(default_factory=dict[int, str])

    def add(self, event: Event) -> None:
        """Take the next event of the journal into account, as resumes do."""
        if isinstance(event, SessionStarted):
            self.started[event.session] = event
        elif isinstance(event, SessionEnded):
            self.ended[event.session] = event
        elif isinstance(event, Dispatched):
            if not self._is_stale(event):
                self.dispatched.append(event)
        elif isinstance(event, Lost):
            self.outcomes.pop(event.attempt_index, None)
            self.remarks[event.attempt_index] = f"its row was cut off by a crash ({event.reason})"
        elif self._is_stale(event):
            self.remarks[event.attempt_index] = f"its outcome came after session {max(self.started)} began and does not count"
        else:
            self.outcomes[event.attempt_index] = event
            if isinstance(event, Migrated):
                self.remarks[event.attempt_index] = "it was a result; its judge's answer was invalid"
            if self.dispatched and event.attempt_index < self.dispatched[-1].attempt_index:
                self.remarks[event.attempt_index] = "it came after a newer attempt was dispatched and decides nothing"

    def _is_stale(self, event: Dispatched | Outcome) -> bool:
        # What a reader recovers has no session yet.
        return 0 <= event.session < max(self.started, default=0)


def _attempt_view(event: Dispatched, told: _Told, failure: FailureView | None, live_session: int | None) -> AttemptView:
    number = event.attempt_index
    session = _session_view(told.started[event.session], told.ended.get(event.session))
    outcome, remark = told.outcomes.get(number), told.remarks.get(number)
    if outcome is None:
        if session.number == live_session and session.ended is None and event is told.dispatched[-1]:
            return AttemptView(number, session, event.at, AttemptEnd.IN_FLIGHT)
        return AttemptView(number, session, event.at, AttemptEnd.INTERRUPTED, remark=remark or _interruption(session))
    if isinstance(outcome, OmittedEvent):
        remark = outcome.reason
        return AttemptView(number, session, event.at, AttemptEnd.OMITTED, ended_at=outcome.at, remark=remark)
    return AttemptView(
        number,
        session,
        event.at,
        _end_of(outcome),
        ended_at=outcome.at or None,
        elapsed_s=outcome.elapsed_s,
        reward=outcome.reward if isinstance(outcome, Success) else None,
        truncated=isinstance(outcome, Success) and outcome.truncated,
        recovered=outcome.recovered,
        remark=remark,
        failure=failure,
    )


def _end_of(outcome: Success | Failed | Migrated) -> AttemptEnd:
    if isinstance(outcome, Failed | Migrated):
        return AttemptEnd.FAILED
    if outcome.masked:
        return AttemptEnd.MASKED
    return AttemptEnd.UNSCORED if outcome.reward is None else AttemptEnd.MEASURED


def _interruption(session: SessionView) -> str:
    if session.ended is None:
        return f"session {session.number} ended without it (no session_ended: killed?)"
    return f"session {session.number} ended without it ({session.ended})"


def _session_view(started: SessionStarted, ended: SessionEnded | None) -> SessionView:
    return SessionView(
        number=started.session,
        host=started.host,
        pid=started.pid,
        started_at=started.at,
        job_id=started.job_id,
        restart_count=started.restart_count,
        lock=started.lock,
        ended=ended.reason if ended else None,
        ended_at=ended.at if ended else None,
    )


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value

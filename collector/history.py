"""What a journal says, folded: the state of every rollout from its events, in order. Pure; reads no file.

The attempt with the greatest index decides. An event of a session older than one already begun is kept and never wins.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias, assert_never

from collector.events import Dispatched, Event, Failed, Lost, OmittedEvent, SessionEnded, SessionStarted, Success
from collector.outcomes import RolloutState
from collector.retry import Past


class Code(IntEnum):
    """A rollout's latest attempt in one byte."""

    NEVER = 0
    UNKNOWN = 1
    MEASURED = 2
    MASKED = 3
    UNSCORED = 4
    OMITTED = 5
    FAILED = 6
    FAILED_TERMINALLY = 7


_STATES = {
    Code.NEVER: RolloutState.NEVER_DISPATCHED,
    Code.UNKNOWN: RolloutState.UNKNOWN,
    Code.MEASURED: RolloutState.MEASURED,
    Code.MASKED: RolloutState.MASKED,
    Code.UNSCORED: RolloutState.UNSCORED,
    Code.OMITTED: RolloutState.OMITTED,
    Code.FAILED: RolloutState.FAILED,
    Code.FAILED_TERMINALLY: RolloutState.FAILED,
}

Outcome: TypeAlias = Success | Failed | OmittedEvent


class HistoryError(ValueError):
    """An event that the events before it exclude; the caller knows the file and the line."""


@dataclass(slots=True)
class RowRanges:
    """The byte ranges of one file that events account for, in journal order, and where they leave gaps."""

    end: int = 0
    #: The row that ends at ``end``, and the journal line that recorded it.
    last: Success | Failed | None = None
    last_line: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    #: Ranges that begin before ``end``: a row of an older session that landed between others.
    early: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def add(self, event: Success | Failed, line: int) -> None:
        """Account for the row of ``event``."""
        if event.offset < self.end:
            self.early.append((event.offset, event.offset + event.length))
            return
        if event.offset > self.end:
            self.gaps.append((self.end, event.offset))
        self.end = event.offset + event.length
        self.last = event
        self.last_line = line

    def cut(self, offset: int) -> None:
        """The last row is gone: the file is to end at ``offset``."""
        self.end = offset
        self.last = None

    def unaccounted(self, size: int) -> list[tuple[int, int]]:
        """The ranges of a file of ``size`` bytes that no event accounts for, in order."""
        open_ranges = [*self.gaps, *([(self.end, size)] if size > self.end else [])]
        for begin, end in sorted(self.early):
            open_ranges = [part for whole in open_ranges for part in _without(whole, begin, end)]
        return open_ranges


class History:
    """The fold. Memory: about 50 bytes a rollout, whatever the rows weigh."""

    def __init__(self, expected: int) -> None:
        self.codes = bytearray(expected)
        self.latest: array[int] = array("i", [-1]) * expected
        self.owner: array[int] = array("i", [-1]) * expected
        #: One bit per attempt that has an outcome; a list because attempts are not bounded by 64.
        self.recorded: list[int] = [0] * expected
        self.offsets: array[int] = array("q", [0]) * expected
        self.lengths: array[int] = array("q", [0]) * expected
        self.checksums: array[int] = array("L", [0]) * expected
        self.rewards: array[float] = array("d", [math.nan]) * expected
        self.elapsed: array[float] = array("f", [math.nan]) * expected
        self.truncated: set[int] = set()
        self.kinds: dict[int, str] = {}
        self.sessions: list[SessionStarted] = []
        self.ended: dict[int, SessionEnded] = {}
        self.main = RowRanges()
        self.sidecar = RowRanges()
        self.late_events = 0
        self.events = 0
        self.last_at = ""
        self._seqs: dict[int, int] = {}

    def fold(self, events: Iterable[Event], index: dict[str, int], run_id: str) -> None:
        """Apply ``events``. Raises HistoryError at the first that cannot follow what came before; ``events`` tells which."""
        for event in events:
            self._check_order(event, run_id)
            if isinstance(event, SessionStarted):
                self._start(event)
            elif isinstance(event, SessionEnded):
                self.ended[event.session] = event
            else:
                position = index.get(event.rollout_id)
                if position is None:
                    raise HistoryError(f"rollout {event.rollout_id!r} is not in the inventory")
                self.apply(event, position)
                continue
            self._count(event)

    def past(self, index: int) -> Past:
        """What retry decisions need to know of rollout ``index``."""
        code = Code(self.codes[index])
        return Past(
            state=_STATES[code],
            dispatched=self.latest[index] + 1,
            recorded=self.recorded[index].bit_count(),
            terminal=code is Code.FAILED_TERMINALLY,
        )

    @property
    def session(self) -> int:
        """The newest session; -1 before the first."""
        return self.sessions[-1].session if self.sessions else -1

    def dispatch(self, index: int, attempt: int, session: int) -> None:
        """Attempt ``attempt`` of rollout ``index`` is about to leave."""
        if attempt != self.latest[index] + 1:
            raise HistoryError(f"attempt {attempt} is dispatched after attempt {self.latest[index]}")
        self.latest[index] = attempt
        self.owner[index] = session
        self.codes[index] = Code.UNKNOWN

    def settle(self, index: int, event: Outcome) -> None:
        """An outcome of rollout ``index``; it decides the state only when its attempt is the latest."""
        bit = 1 << event.attempt_index
        if event.attempt_index > self.latest[index]:
            raise HistoryError(f"attempt {event.attempt_index} of {event.rollout_id} has an outcome and was never dispatched")
        if self.recorded[index] & bit:
            raise HistoryError(f"attempt {event.attempt_index} of {event.rollout_id} has two outcomes")
        self.recorded[index] |= bit
        if event.attempt_index == self.latest[index]:
            self._select(index, event)

    def _check_order(self, event: Event, run_id: str) -> None:
        if event.run_id != run_id:
            raise HistoryError(f"an event of run {event.run_id}, in a journal of run {run_id}")
        expected = self._seqs.get(event.session, 0)
        if event.seq != expected:
            raise HistoryError(f"event {event.seq} of session {event.session} stands where event {expected} belongs")
        self._seqs[event.session] = expected + 1

    def _start(self, event: SessionStarted) -> None:
        if event.session != self.session + 1:
            raise HistoryError(f"session {event.session} begins after session {self.session}")
        self.sessions.append(event)

    def apply(self, event: Dispatched | Outcome | Lost, index: int) -> None:
        """Apply one event of rollout ``index``; one of an older session is accounted for and decides nothing."""
        if isinstance(event, Success):
            self.main.add(event, self.events + 1)
        elif isinstance(event, Failed):
            self.sidecar.add(event, self.events + 1)
        if event.session < self.session:
            self.late_events += 1
        elif isinstance(event, Dispatched):
            self.dispatch(index, event.attempt_index, event.session)
        elif isinstance(event, Lost):
            self.lose(index, event)
        else:
            self.settle(index, event)
        self._count(event)

    def _count(self, event: Event) -> None:
        self.events += 1
        self.last_at = event.at

    def lose(self, index: int, event: Lost) -> None:
        """The row of an outcome is gone: its attempt has none any more."""
        self.recorded[index] &= ~(1 << event.attempt_index)
        if event.attempt_index == self.latest[index]:
            self._forget(index)
            self.codes[index] = Code.UNKNOWN
        (self.main if event.file == "rollouts" else self.sidecar).cut(event.offset)

    def _forget(self, index: int) -> None:
        self.rewards[index] = math.nan
        self.truncated.discard(index)
        self.kinds.pop(index, None)

    def _select(self, index: int, event: Outcome) -> None:
        self._forget(index)
        match event:
            case Success():
                self.codes[index] = _success_code(event)
                self.rewards[index] = math.nan if event.reward is None else float(event.reward)
                if event.truncated:
                    self.truncated.add(index)
                self._place(index, event)
            case Failed():
                self.codes[index] = Code.FAILED_TERMINALLY if event.terminal else Code.FAILED
                self.kinds[index] = event.kind or event.failure_class
                self._place(index, event)
            case OmittedEvent():
                self.codes[index] = Code.OMITTED
            case _:
                assert_never(event)

    def _place(self, index: int, event: Success | Failed) -> None:
        self.offsets[index] = event.offset
        self.lengths[index] = event.length
        self.checksums[index] = event.checksum
        if event.elapsed_s is not None:
            self.elapsed[index] = event.elapsed_s


def _success_code(event: Success) -> Code:
    if event.masked:
        return Code.MASKED
    return Code.UNSCORED if event.reward is None else Code.MEASURED


def _without(whole: tuple[int, int], begin: int, end: int) -> list[tuple[int, int]]:
    low, high = whole
    if end <= low or begin >= high:
        return [whole]
    parts = [(low, begin), (end, high)]
    return [(first, last) for first, last in parts if first < last]

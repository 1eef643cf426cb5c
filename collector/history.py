"""What a journal says, folded: the state of every rollout from its events, in order. Pure; reads no file.

The attempt with the greatest index decides. An event of a session older than one already begun is kept and never wins.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias

from collector.events import Dispatched, Event, Failed, Lost, Migrated, OmittedEvent, SessionEnded, SessionStarted, Success
from collector.outcomes import RolloutState


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
    #: Planned anew in another shard: no longer this one's, whatever its journal says.
    MOVED = 8


_STATES = {
    Code.NEVER: RolloutState.NEVER_DISPATCHED,
    Code.UNKNOWN: RolloutState.UNKNOWN,
    Code.MEASURED: RolloutState.MEASURED,
    Code.MASKED: RolloutState.MASKED,
    Code.UNSCORED: RolloutState.UNSCORED,
    Code.OMITTED: RolloutState.OMITTED,
    Code.FAILED: RolloutState.FAILED,
    Code.FAILED_TERMINALLY: RolloutState.FAILED,
    # Nothing is to be done about it here; reports never count it.
    Code.MOVED: RolloutState.OMITTED,
}

#: Codes of rollouts that need nothing more, with their state.
CLOSED_CODES = {code: _STATES[code] for code in (Code.MEASURED, Code.MASKED, Code.UNSCORED, Code.OMITTED)}
#: Codes of rollouts whose latest attempt has a row in the file of results.
RESULT_CODES = frozenset({Code.MEASURED, Code.MASKED, Code.UNSCORED})
#: Codes of rollouts that may need another attempt.
OPEN_CODES = frozenset({Code.NEVER, Code.UNKNOWN, Code.FAILED, Code.FAILED_TERMINALLY})

Outcome: TypeAlias = Success | Failed | OmittedEvent


@dataclass(frozen=True, slots=True)
class Past:
    """What the journal knows of one rollout. ``dispatched`` attempts, of which ``recorded`` have an outcome."""

    state: RolloutState
    dispatched: int
    recorded: int
    terminal: bool
    #: The routing class of the latest failure; None when the latest attempt did not fail.
    failure_class: str | None = None

    @property
    def interrupted(self) -> int:
        """Attempts that left and never came back."""
        return self.dispatched - self.recorded


class HistoryError(ValueError):
    """An event that the events before it exclude; the caller knows the file and the line."""


@dataclass(slots=True)
class RowRanges:
    """The byte ranges of one file that events account for, in journal order, and where they leave gaps."""

    end: int = 0
    #: The row that ends at ``end``, and the journal line that recorded it.
    last: Success | Failed | Migrated | None = None
    last_line: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    #: Ranges that begin before ``end``: a row of an older session that landed between others.
    early: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def add(self, event: Success | Failed | Migrated, line: int) -> None:
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
        #: Of rollouts whose latest attempt failed: kind (the class where the producer gave none) and routing class.
        self.kinds: dict[int, str] = {}
        self.classes: dict[int, str] = {}
        #: The newest session; -1 before the first.
        self.session = -1
        self.sessions: list[SessionStarted] = []
        self.ended: dict[int, SessionEnded] = {}
        self.main = RowRanges()
        self.sidecar = RowRanges()
        self.late_events = 0
        self.events = 0
        self.last_at = ""
        self._seqs: dict[int, int] = {}

    def fold(self, events: Iterable[Event], index: Mapping[str, int], run_id: str) -> None:
        """Apply ``events``. Raises HistoryError at the first that cannot follow what came before; ``events`` tells which."""
        seqs = self._seqs
        for event in events:
            session = event.session
            if event.run_id != run_id or event.seq != seqs.get(session, 0):
                raise self._out_of_order(event, run_id)
            seqs[session] = event.seq + 1
            if isinstance(event, SessionStarted):
                self._start(event)
            elif isinstance(event, SessionEnded):
                self.ended[session] = event
                self._count(event)
            elif (position := index.get(event.rollout_id)) is not None:
                self.apply(event, position)
            else:
                raise HistoryError(f"rollout {event.rollout_id!r} is not in the inventory")

    def past(self, index: int) -> Past:
        """What retry decisions need to know of rollout ``index``."""
        code = Code(self.codes[index])
        return Past(
            state=_STATES[code],
            dispatched=self.latest[index] + 1,
            recorded=self.recorded[index].bit_count(),
            terminal=code is Code.FAILED_TERMINALLY,
            failure_class=self.classes.get(index),
        )

    def apply(self, event: Dispatched | Outcome | Migrated | Lost, index: int) -> None:
        """Apply one event of rollout ``index``; one of an older session is accounted for and decides nothing."""
        if isinstance(event, Success):
            self.main.add(event, self.events + 1)
        elif isinstance(event, Failed | Migrated):
            self.sidecar.add(event, self.events + 1)
        if event.session < self.session:
            self.late_events += 1
        elif isinstance(event, Dispatched):
            self.dispatch(index, event.attempt_index, event.session)
        elif isinstance(event, Lost):
            self.lose(index, event)
        elif isinstance(event, Migrated):
            self.migrate(index, event)
        else:
            self.settle(index, event)
        self.events += 1
        self.last_at = event.at

    def dispatch(self, index: int, attempt: int, session: int) -> None:
        """Attempt ``attempt`` of rollout ``index`` is about to leave."""
        if attempt != self.latest[index] + 1:
            raise HistoryError(f"attempt {attempt} is dispatched after attempt {self.latest[index]}")
        if attempt:
            self._forget(index)
        self.latest[index] = attempt
        self.owner[index] = session
        self.codes[index] = Code.UNKNOWN

    def settle(self, index: int, event: Outcome) -> None:
        """An outcome of rollout ``index``; it decides the state only when its attempt is the latest."""
        attempt = event.attempt_index
        if attempt > self.latest[index]:
            raise HistoryError(f"attempt {attempt} of {event.rollout_id} has an outcome and was never dispatched")
        recorded = self.recorded[index]
        if recorded >> attempt & 1:
            raise HistoryError(f"attempt {attempt} of {event.rollout_id} has two outcomes")
        self.recorded[index] = recorded | 1 << attempt
        if attempt == self.latest[index]:
            self._select(index, event)

    def _out_of_order(self, event: Event, run_id: str) -> HistoryError:
        if event.run_id != run_id:
            return HistoryError(f"an event of run {event.run_id}, in a journal of run {run_id}")
        expected = self._seqs.get(event.session, 0)
        return HistoryError(f"event {event.seq} of session {event.session} stands where event {expected} belongs")

    def _start(self, event: SessionStarted) -> None:
        if event.session != self.session + 1:
            raise HistoryError(f"session {event.session} begins after session {self.session}")
        self.sessions.append(event)
        self.session = event.session
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
        if self.codes[index] in OPEN_CODES and self.offsets[index] == event.offset:
            self.lengths[index] = 0
        (self.main if event.file == "rollouts" else self.sidecar).cut(event.offset)

    def migrate(self, index: int, event: Migrated) -> None:
        """The result of rollout ``index`` is a failure from now on; the attempt stays used."""
        if event.attempt_index != self.latest[index] or self.codes[index] not in RESULT_CODES:
            raise HistoryError(f"attempt {event.attempt_index} of {event.rollout_id} is migrated and is no result")
        self._forget(index)
        self._fail(index, event)
        self.codes[index] = Code.FAILED

    def has_failure_row(self, index: int) -> bool:
        """Whether the latest recorded outcome of an open rollout has a row, which then stands in the failures file."""
        return self.recorded[index] != 0 and self.lengths[index] > 0

    def move(self, index: int) -> None:
        """Rollout ``index`` belongs to another shard now: it counts nowhere here and is never dispatched again."""
        self._forget(index)
        self.codes[index] = Code.MOVED

    @property
    def owned(self) -> int:
        """Rollouts that are this shard's."""
        return len(self.codes) - self.codes.count(Code.MOVED)

    def _forget(self, index: int) -> None:
        self.rewards[index] = math.nan
        self.truncated.discard(index)
        self.kinds.pop(index, None)
        self.classes.pop(index, None)

    def _select(self, index: int, event: Outcome) -> None:
        if isinstance(event, Success):
            self.codes[index] = _success_code(event)
            if event.reward is not None:
                self.rewards[index] = event.reward
            if event.truncated:
                self.truncated.add(index)
            self._place(index, event)
        elif isinstance(event, Failed):
            self.codes[index] = Code.FAILED_TERMINALLY if event.terminal else Code.FAILED
            self._fail(index, event)
        else:
            self.codes[index] = Code.OMITTED

    def _fail(self, index: int, event: Failed | Migrated) -> None:
        self.kinds[index] = event.kind or event.failure_class
        self.classes[index] = event.failure_class
        self._place(index, event)

    def _place(self, index: int, event: Success | Failed | Migrated) -> None:
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

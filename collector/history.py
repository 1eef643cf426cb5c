"""What a journal says, folded: the state of every rollout from its events, in order. Pure; reads no file.

The attempt with the greatest index decides. An event of a session older than one already begun is kept and never wins.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from sys import intern
from typing import NamedTuple, TypeAlias

from collector.events import Dispatched, Event, Failed, Lost, Migrated, OmittedEvent, SessionEnded, SessionStarted, Success
from collector.outcomes import RolloutState
from collector.row_ranges import RowRanges
from collector.scores import Scores


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

#: Plain numbers: as members of an enum they cost more than all else of an event.
_UNKNOWN, _MEASURED = int(Code.UNKNOWN), int(Code.MEASURED)
#: Attempts whose outcomes fit one byte.
_MOST_BITS = 8

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


class Place(NamedTuple):
    """The bytes of one row in its file."""

    offset: int
    length: int
    checksum: int


class HistoryError(ValueError):
    """An event that the events before it exclude; the caller knows the file and the line."""


class History:
    """The fold. Memory: about 50 bytes a rollout, whatever the rows weigh; 6 of them without what is known of its row."""

    def __init__(self, expected: int, *, keeps_rows: bool = True) -> None:
        self.codes = bytearray(expected)
        self.latest: array[int] = array("i", [-1]) * expected
        #: One bit per attempt that has an outcome; a list once there is a ninth attempt.
        self.recorded: bytearray | list[int] = bytearray(expected)
        self._make_columns(expected if keeps_rows else 0)
        self._keeps_rows = keeps_rows
        self._scores = Scores()
        self._failed_rows: dict[int, Place] = {}
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

    def _make_columns(self, size: int) -> None:
        """What is known of the row of each rollout's latest outcome; only who reads rows needs it."""
        self.owner: array[int] = array("i", [-1]) * size
        self.offsets: array[int] = array("q", [0]) * size
        self.lengths: array[int] = array("q", [0]) * size
        self.checksums: array[int] = array("L", [0]) * size
        self.rewards: array[float] = array("d", [math.nan]) * size
        self.elapsed: array[float] = array("f", [math.nan]) * size

    def forget_rows(self) -> None:
        """Keep from now on only what dispatching and the counts need: the columns of rows become empty."""
        if self._keeps_rows:
            self._scores = self.scores()
            places = ((i, self.failure_place(i)) for i, code in enumerate(self.codes) if code in OPEN_CODES)
            self._failed_rows = {index: place for index, place in places if place is not None}
            self._keeps_rows = False
            self._make_columns(0)

    def scores(self) -> Scores:
        """The rewards of all measured rollouts, added up."""
        if not self._keeps_rows:
            return self._scores
        return Scores.of(r for r, code in zip(self.rewards, self.codes, strict=True) if code == Code.MEASURED)

    def failure_place(self, index: int) -> Place | None:
        """Where the failures file has the latest recorded outcome of an open rollout; None when it has none."""
        if not self._keeps_rows:
            return self._failed_rows.get(index)
        if not self.recorded[index] or not self.lengths[index]:
            return None
        return Place(self.offsets[index], self.lengths[index], self.checksums[index])

    def fold(self, events: Iterable[Event], index: Mapping[str, int], run_id: str) -> None:
        """Apply ``events``. Raises HistoryError at the first that cannot follow what came before; ``events`` tells which."""
        seqs, find = self._seqs, index.get
        for event in events:
            session = event.session
            if event.run_id != run_id or event.seq != seqs.get(session, 0):
                raise self._out_of_order(event, run_id)
            seqs[session] = event.seq + 1
            # A resume of a million rollouts comes here two million times: what nearly all events are goes a shorter way.
            if isinstance(event, Success):
                position = find(event.rollout_id)
                if position is None or not self._score_first(event, position):
                    self._fold_any(event, position)
            elif isinstance(event, Dispatched):
                position = find(event.rollout_id)
                if position is None or not self._dispatch_first(event, position):
                    self._fold_any(event, position)
            elif isinstance(event, SessionStarted | SessionEnded):
                self._mark(event)
            else:
                self._fold_any(event, find(event.rollout_id))

    def _fold_any(self, event: Dispatched | Outcome | Migrated | Lost, position: int | None) -> None:
        if position is None:
            raise HistoryError(f"rollout {event.rollout_id!r} is not in the inventory")
        self.apply(event, position)

    def _dispatch_first(self, event: Dispatched, index: int) -> bool:
        """``apply`` for the first dispatch of a rollout; False for any other."""
        if event.attempt_index or self.latest[index] != -1 or event.session != self.session or not self._keeps_rows:
            return False
        self.latest[index] = 0
        self.owner[index] = event.session
        self.codes[index] = _UNKNOWN
        self.events += 1
        self.last_at = event.at
        return True

    def _score_first(self, event: Success, index: int) -> bool:
        """``apply`` for the plain score of a first attempt whose row follows the row before; False for any other."""
        reward, elapsed_s, main = event.reward, event.elapsed_s, self.main
        if event.attempt_index or self.latest[index] or self.recorded[index] or event.session != self.session:
            return False
        if reward is None or elapsed_s is None or event.masked or event.truncated:
            return False
        if event.offset != main.end or not self._keeps_rows:
            return False
        self.recorded[index] = 1
        self.codes[index] = _MEASURED
        self.offsets[index] = main.end
        self.lengths[index] = event.length
        self.checksums[index] = event.checksum
        self.rewards[index] = reward
        self.elapsed[index] = elapsed_s
        self.events += 1
        main.end += event.length
        main.last = event
        main.last_line = self.events
        self.last_at = event.at
        return True

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
        is_late = event.session < self.session
        # In order of frequency: a resume of a million rollouts comes here two million times.
        if isinstance(event, Dispatched):
            if not is_late:
                self.dispatch(index, event.attempt_index, event.session)
        elif isinstance(event, Success):
            self.main.add(event, self.events + 1)
            if not is_late:
                self.settle(index, event)
        else:
            self._apply_rare(event, index, is_late=is_late)
        self.late_events += is_late
        self.events += 1
        self.last_at = event.at

    def _apply_rare(self, event: Failed | OmittedEvent | Migrated | Lost, index: int, *, is_late: bool) -> None:
        if isinstance(event, Failed | Migrated):
            self.sidecar.add(event, self.events + 1)
        if is_late:
            return
        if isinstance(event, Lost):
            self.lose(index, event)
        elif isinstance(event, Migrated):
            self.migrate(index, event)
        else:
            self.settle(index, event)

    def dispatch(self, index: int, attempt: int, session: int) -> None:
        """Attempt ``attempt`` of rollout ``index`` is about to leave."""
        if attempt != self.latest[index] + 1:
            raise HistoryError(f"attempt {attempt} is dispatched after attempt {self.latest[index]}")
        if attempt:
            self._forget(index)
        self.latest[index] = attempt
        if self._keeps_rows:
            self.owner[index] = session
        self.codes[index] = _UNKNOWN

    def settle(self, index: int, event: Outcome) -> None:
        """An outcome of rollout ``index``; it decides the state only when its attempt is the latest."""
        attempt = event.attempt_index
        if attempt > self.latest[index]:
            raise HistoryError(f"attempt {attempt} of {event.rollout_id} has an outcome and was never dispatched")
        recorded = self.recorded[index]
        if recorded >> attempt & 1:
            raise HistoryError(f"attempt {attempt} of {event.rollout_id} has two outcomes")
        if attempt >= _MOST_BITS and isinstance(self.recorded, bytearray):
            self.recorded = list(self.recorded)
        self.recorded[index] = recorded | 1 << attempt
        if attempt == self.latest[index]:
            self._select(index, event)

    def _out_of_order(self, event: Event, run_id: str) -> HistoryError:
        if event.run_id != run_id:
            return HistoryError(f"an event of run {event.run_id}, in a journal of run {run_id}")
        expected = self._seqs.get(event.session, 0)
        return HistoryError(f"event {event.seq} of session {event.session} stands where event {expected} belongs")

    def _mark(self, event: SessionStarted | SessionEnded) -> None:
        if isinstance(event, SessionEnded):
            self.ended[event.session] = event
        elif event.session != self.session + 1:
            raise HistoryError(f"session {event.session} begins after session {self.session}")
        else:
            self.sessions.append(event)
            self.session = event.session
        self.events += 1
        self.last_at = event.at

    def lose(self, index: int, event: Lost) -> None:
        """The row of an outcome is gone: its attempt has none any more."""
        self.recorded[index] &= ~(1 << event.attempt_index)
        if event.attempt_index == self.latest[index]:
            self._forget(index)
            self.codes[index] = Code.UNKNOWN
        place = self.failure_place(index) if self.codes[index] in OPEN_CODES else None
        if place is not None and place.offset == event.offset:
            self._failed_rows.pop(index, None)
            if self._keeps_rows:
                self.lengths[index] = 0
        (self.main if event.file == "rollouts" else self.sidecar).cut(event.offset)

    def migrate(self, index: int, event: Migrated) -> None:
        """The result of rollout ``index`` is a failure from now on; the attempt stays used."""
        if event.attempt_index != self.latest[index] or self.codes[index] not in RESULT_CODES:
            raise HistoryError(f"attempt {event.attempt_index} of {event.rollout_id} is migrated and is no result")
        self._forget(index)
        self._fail(index, event)
        self.codes[index] = Code.FAILED

    def move(self, index: int) -> None:
        """Rollout ``index`` belongs to another shard now: it counts nowhere here and is never dispatched again."""
        self._forget(index)
        self.codes[index] = Code.MOVED

    @property
    def owned(self) -> int:
        """Rollouts that are this shard's."""
        return len(self.codes) - self.codes.count(Code.MOVED)

    def _forget(self, index: int) -> None:
        if self._keeps_rows:
            self.rewards[index] = math.nan
        self.truncated.discard(index)
        self.kinds.pop(index, None)
        self.classes.pop(index, None)

    def _select(self, index: int, event: Outcome) -> None:
        if isinstance(event, Success):
            self._complete(index, event)
        elif isinstance(event, Failed):
            self.codes[index] = Code.FAILED_TERMINALLY if event.terminal else Code.FAILED
            self._fail(index, event)
        else:
            self.codes[index] = Code.OMITTED

    def _complete(self, index: int, event: Success) -> None:
        reward = event.reward
        if event.masked:
            self.codes[index] = Code.MASKED
        elif reward is None:
            self.codes[index] = Code.UNSCORED
        else:
            self.codes[index] = _MEASURED
        if event.truncated:
            self.truncated.add(index)
        if self._keeps_rows:
            if reward is not None:
                self.rewards[index] = reward
            self._place(index, event)
        elif reward is not None and not event.masked:
            self._scores.add(reward)

    def _fail(self, index: int, event: Failed | Migrated) -> None:
        # Interned: a million failures are of a few kinds.
        self.kinds[index] = intern(str(event.kind or event.failure_class))
        self.classes[index] = intern(str(event.failure_class))
        if self._keeps_rows:
            self._place(index, event)
        else:
            self._failed_rows[index] = Place(event.offset, event.length, event.checksum)

    def _place(self, index: int, event: Success | Failed | Migrated) -> None:
        self.offsets[index] = event.offset
        self.lengths[index] = event.length
        self.checksums[index] = event.checksum
        if event.elapsed_s is not None:
            self.elapsed[index] = event.elapsed_s

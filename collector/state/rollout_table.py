"""What a journal makes of every rollout, in columns: the state of its latest attempt, its attempts, the place of its row."""

from __future__ import annotations

import math
from array import array
from itertools import compress
from sys import intern
from typing import TypeAlias

from collector.formats.events import Failed, Migrated, OmittedEvent, Success
from collector.state.codes import OPEN_CODES, RESULT_CODES, STATES, Code, Past, Place
from collector.state.scores import Scores

#: A plain number: as a member of an enum it costs more than all else of an event.
_UNKNOWN, _MEASURED = int(Code.UNKNOWN), int(Code.MEASURED)
#: Attempts whose outcomes fit one byte.
_MOST_BITS = 8

Outcome: TypeAlias = Success | Failed | OmittedEvent


class HistoryError(ValueError):
    """An event that the events before it exclude; the caller knows the file and the line."""


class RolloutTable:
    """The columns. Memory: about 55 bytes a rollout, whatever the rows weigh; 6 of them without what is known of its row."""

    def __init__(self, expected: int, *, keeps_rows: bool) -> None:
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

    def _make_columns(self, size: int) -> None:
        """What is known of the row of each rollout's latest outcome; only who reads rows needs it."""
        self.owner: array[int] = array("i", [-1]) * size
        self.offsets: array[int] = array("q", [0]) * size
        self.lengths: array[int] = array("q", [0]) * size
        self.checksums: array[int] = array("L", [0]) * size
        self.rewards: array[float] = array("d", [math.nan]) * size
        self.elapsed: array[float] = array("d", [math.nan]) * size

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
        is_measured = map(_MEASURED.__eq__, self.codes)
        return Scores.of(array("d", compress(self.rewards, is_measured)))

    def failure_place(self, index: int) -> Place | None:
        """Where the failures file has the latest recorded outcome of an open rollout; None when it has none."""
        if not self._keeps_rows:
            return self._failed_rows.get(index)
        if not self.recorded[index] or not self.lengths[index]:
            return None
        return Place(self.offsets[index], self.lengths[index], self.checksums[index])

    def past(self, index: int) -> Past:
        """What retry decisions need to know of rollout ``index``."""
        code = Code(self.codes[index])
        return Past(
            state=STATES[code],
            dispatched=self.latest[index] + 1,
            recorded=self.recorded[index].bit_count(),
            terminal=code is Code.FAILED_TERMINALLY,
            failure_class=self.classes.get(index),
        )

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

    def lose_row(self, index: int, attempt: int, offset: int) -> None:
        """The row of an outcome is gone: its attempt has none any more."""
        self.recorded[index] &= ~(1 << attempt)
        if attempt == self.latest[index]:
            self._forget(index)
            self.codes[index] = Code.UNKNOWN
        place = self.failure_place(index) if self.codes[index] in OPEN_CODES else None
        if place is not None and place.offset == offset:
            self._failed_rows.pop(index, None)
            if self._keeps_rows:
                self.lengths[index] = 0

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

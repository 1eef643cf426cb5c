"""What a journal says, folded: the state of every rollout from its events, in order. Pure; reads no file.

The attempt with the greatest index decides. An event of a session older than one already begun is kept and never wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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
from collector.state.codes import Code
from collector.state.rollout_table import HistoryError, Outcome, RolloutTable
from collector.state.row_ranges import RowRanges

#: Plain numbers: as members of an enum they cost more than all else of an event.
_UNKNOWN, _MEASURED = int(Code.UNKNOWN), int(Code.MEASURED)


class History(RolloutTable):
    """The fold: the table of all rollouts, and what the journal says beside them."""

    def __init__(self, expected: int, *, keeps_rows: bool = True) -> None:
        super().__init__(expected, keeps_rows=keeps_rows)
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

    def lose(self, index: int, event: Lost) -> None:
        """The row of an outcome is gone from the end of its file."""
        self.lose_row(index, event.attempt_index, event.offset)
        (self.main if event.file == "rollouts" else self.sidecar).cut(event.offset)

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

    def _out_of_order(self, event: Event, run_id: str) -> HistoryError:
        if event.run_id != run_id:
            return HistoryError(f"an event of run {event.run_id}, in a journal of run {run_id}")
        expected = self._seqs.get(event.session, 0)
        return HistoryError(f"event {event.seq} of session {event.session} stands where event {expected} belongs")

"""How far a collection is, told to a log file or to a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TextIO

from collector.history import Code
from collector.session import ShardSession

#: Seconds between two lines in a log, and between two states of a line on a terminal.
_LOG_PAUSE_S: Final = 30.0
_LINE_PAUSE_S: Final = 0.1
_DONE: Final = frozenset({Code.MEASURED, Code.MASKED, Code.UNSCORED, Code.OMITTED})
_FAILED: Final = frozenset({Code.FAILED, Code.FAILED_TERMINALLY})


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of one shard at one moment."""

    expected: int
    done: int
    failing: int
    score: float | None

    def __str__(self) -> str:
        score = "" if self.score is None else f", mean reward {self.score:.4g} so far"
        failing = f", {self.failing} failing" if self.failing else ""
        return f"{self.done} of {self.expected} done{failing}{score}"


def tally(session: ShardSession) -> Tally:
    """The counts of ``session`` now."""
    history = session.store.history
    scores = history.scores()
    return Tally(
        expected=len(history.codes),
        done=sum(code in _DONE for code in history.codes),
        failing=sum(code in _FAILED for code in history.codes),
        score=None if scores.total is None else scores.total / scores.count,
    )


class LogProgress:
    """A line now and then; the collector's event loop calls it and it returns at once."""

    pause_s: float = _LOG_PAUSE_S

    def __init__(self, say: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._next = clock() + self.pause_s
        self._session: ShardSession | None = None

    def started(self, session: ShardSession) -> None:
        """Say what is there already."""
        self._session = session
        self._say(str(tally(session)))

    def changed(self) -> None:
        """Say where it stands, unless that was said a moment ago."""
        if self._session is not None and self._clock() >= self._next:
            begun = self._clock()
            self._say(str(tally(self._session)))
            # Counting a million rollouts takes tens of milliseconds: at most a twentieth of the time goes into it.
            self._next = self._clock() + max(self.pause_s, 20 * (self._clock() - begun))


class LineProgress(LogProgress):
    """One line, rewritten in place on a terminal; elsewhere as seldom as a log's."""

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._in_place = stream.isatty()
        self.pause_s = _LINE_PAUSE_S if self._in_place else _LOG_PAUSE_S
        super().__init__(self._show, clock=clock)

    def end(self) -> None:
        """Show the last state and leave the line."""
        if self._session is not None:
            self._show(str(tally(self._session)))
        if self._in_place:
            self._stream.write("\n")

    def _show(self, text: str) -> None:
        self._stream.write(f"\r\x1b[K{text}" if self._in_place else f"{text}\n")
        self._stream.flush()

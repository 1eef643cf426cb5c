"""How far a collection is, told to a log file or to a terminal."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TextIO

from collector.session import ShardSession
from collector.state.codes import CLOSED_CODES, Code
from collector.text.counted import counted
from orchestrate.terminal import fitting

#: Seconds between two lines in a log, and between two states of a line on a terminal.
_LOG_PAUSE_S: Final = 30.0
_LINE_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Counts of one shard at one moment. ``rate`` is rollouts completed per second of this session; None before the first."""

    expected: int
    done: int
    measured: int
    mean: float | None = None
    failing: Mapping[str, int] = field(default_factory=dict[str, int])
    rate: float | None = None
    #: Tokens that judges were sent and said in this session.
    judge_tokens: tuple[int, int] = (0, 0)

    def __str__(self) -> str:
        parts = [f"{self.done}/{self.expected} done"]
        if self.rate:
            parts.append(f"{self.rate:.3g}/s")
            if self.done < self.expected:
                parts.append(f"about {roughly((self.expected - self.done) / self.rate)} left")
        if self.mean is not None:
            parts.append(f"mean reward {self.mean:.4g} ({self.measured}/{self.expected})")
        if self.failing:
            kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.failing.items()))
            parts.append(f"failing {sum(self.failing.values())} ({kinds})")
        if any(self.judge_tokens):
            sent, said = self.judge_tokens
            parts.append(f"judge {counted(sent, 'token')} in, {said:,} out")
        return ", ".join(parts)


def roughly(seconds: float) -> str:
    """``40 s``, ``12 min`` or ``3 h 20 min``: as exact as an estimate may look."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def tally(session: ShardSession, *, rate: float | None = None) -> Tally:
    """The counts of ``session`` now."""
    history = session.store.history
    scores = history.scores()
    return Tally(
        expected=history.owned,
        done=done_in(session),
        measured=history.codes.count(Code.MEASURED),
        mean=None if scores.total is None else scores.total / scores.count,
        failing=Counter(history.kinds.values()),
        rate=rate,
        judge_tokens=(session.judge_tokens[0], session.judge_tokens[1]),
    )


def done_in(session: ShardSession) -> int:
    """Rollouts of ``session`` that need nothing more."""
    return sum(session.store.history.codes.count(code) for code in CLOSED_CODES)


class LogProgress:
    """A line now and then; the collector's event loop calls it and it returns at once."""

    pause_s: float = _LOG_PAUSE_S

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._next = time.monotonic() + self.pause_s
        self._session: ShardSession | None = None
        self._begun = time.monotonic()
        self._done_before = 0
        #: What was said last, but for the speed.
        self._told: Tally | None = None

    def started(self, session: ShardSession) -> None:
        """Say what is there already."""
        self._session = session
        self._begun = time.monotonic()
        self._done_before = done_in(session)
        self._told = tally(session)
        self._say(str(self._told))

    def changed(self) -> None:
        """Say where it stands, unless that was said a moment ago."""
        if self._session is not None and time.monotonic() >= self._next:
            begun = time.monotonic()
            self._say(self._text(self._session))
            # Counting a million rollouts takes tens of milliseconds: at most a twentieth of the time goes into it.
            self._next = time.monotonic() + max(self.pause_s, 20 * (time.monotonic() - begun))

    def _text(self, session: ShardSession) -> str:
        elapsed_s = time.monotonic() - self._begun
        self._told = tally(session)
        completed = done_in(session) - self._done_before
        rate = completed / elapsed_s if completed and elapsed_s > 0 else None
        return str(tally(session, rate=rate))


class LineProgress(LogProgress):
    """One line, rewritten in place on a terminal; elsewhere as seldom as a log's."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._in_place = stream.isatty()
        self.pause_s = _LINE_PAUSE_S if self._in_place else _LOG_PAUSE_S
        super().__init__(self._show)

    def end(self) -> None:
        """Show the last state, in a log unless it was said last, and leave the line."""
        if self._session is not None and (self._in_place or tally(self._session) != self._told):
            self._show(self._text(self._session))
        if self._in_place:
            self._stream.write("\n")

    def _show(self, text: str) -> None:
        # A line that goes on in the next one could not be cleared.
        self._stream.write(f"\r\x1b[K{fitting(text, self._stream)}" if self._in_place else f"{text}\n")
        self._stream.flush()

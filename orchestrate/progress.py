"""How far a collection is, told to a log file or to a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from collector.history import Code
from collector.session import ShardSession

#: Seconds between two lines in a log.
_LOG_PAUSE_S: Final = 30.0


@dataclass(slots=True)
class Tally:
    """Running counts of one shard."""

    expected: int
    done: int
    failed: int

    def __str__(self) -> str:
        return f"{self.done} of {self.expected} done, {self.failed} failing"


class LogProgress:
    """A line now and then; the collector's event loop calls it and it returns at once."""

    def __init__(self, say: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._next = clock() + _LOG_PAUSE_S
        self._session: ShardSession | None = None

    def started(self, session: ShardSession) -> None:
        """Say what is there already."""
        self._session = session
        self._say(f"session {session.number}: {tally(session)}")

    def changed(self) -> None:
        """Say where it stands, unless that was said a moment ago."""
        if self._session is not None and self._clock() >= self._next:
            self._next = self._clock() + _LOG_PAUSE_S
            self._say(str(tally(self._session)))


def tally(session: ShardSession) -> Tally:
    """The counts of ``session`` now."""
    codes = session.store.history.codes
    done = sum(code in _DONE for code in codes)
    return Tally(len(codes), done, sum(code == Code.FAILED for code in codes))


_DONE: Final = frozenset({Code.MEASURED, Code.MASKED, Code.UNSCORED, Code.OMITTED})

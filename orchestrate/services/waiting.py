"""One service that is asked until it answers, while the job's log tells of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from orchestrate.services.endpoint import Endpoint, Probe
from orchestrate.services.waits import answers_line, waits_line

#: Seconds between two questions to a service that is not ready.
PROBE_PAUSE_S: Final = 0.5
#: Seconds between two lines of one service, doubled up to the most: reasons may differ in a number each time, and the first
#: one of a server that just begins tells little.
_LINE_PAUSE_S: Final = 1.0
_MOST_PAUSE_S: Final = 30.0


class Waiting:
    """The wait for one service. ``say`` writes a line of the job's log: when it begins, why it lasts, and when it is over."""

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        limit_s: float,
        say: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        #: Why it was not ready when it was asked last.
        self.reason = "nothing was asked yet"
        self._name = name
        self._endpoint = endpoint
        self._limit_s = limit_s
        self._say = say
        self._clock = clock
        self._said = ""
        self._next = clock()
        self._pause_s = _LINE_PAUSE_S

    async def until_ready(self, probe: Probe, health_url: str | None = None) -> None:
        """Return when the service answers, however long that takes. Raises what ``probe`` raises."""
        self._say(self._line())
        while (reason := await probe(self._name, self._endpoint, health_url)) is not None:
            self._hear(reason)
            await asyncio.sleep(PROBE_PAUSE_S)
        self._say(answers_line(self._name))

    def _hear(self, reason: str) -> None:
        self.reason = reason
        if (line := self._line(reason)) != self._said and self._clock() >= self._next:
            self._said, self._next = line, self._clock() + self._pause_s
            self._pause_s = min(_MOST_PAUSE_S, 2 * self._pause_s)
            self._say(line)

    def _line(self, reason: str = "") -> str:
        return waits_line(self._name, self._endpoint.base_url, self._limit_s, reason)

"""How a collector is asked to end early: a request that anybody may make, once or twice."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from enum import StrEnum


class StopReason(StrEnum):
    """Who asked, or what ran out."""

    TERMINATED = "terminated"
    INTERRUPTED = "interrupted"
    TIME_LIMIT = "time_limit"
    SERVICE_DIED = "service_died"
    ENDPOINT_BROKEN = "endpoint_broken"
    DISPATCH_BUDGET = "dispatch_budget"


#: Stops that take the model's server away as well: a signal to the whole job, or the server's own end.
TAKES_THE_SERVER = frozenset({StopReason.TERMINATED, StopReason.INTERRUPTED, StopReason.TIME_LIMIT, StopReason.SERVICE_DIED})


class StopRequest:
    """Asked once: nothing more is dispatched, and what is in flight may finish within the margin. Asked twice: at once.

    In flight is what is recorded as dispatched, or being recorded at that moment.
    """

    def __init__(self, *, margin_s: float = 30.0) -> None:
        self.margin_s = margin_s
        self.reason: StopReason | None = None
        self._asked = asyncio.Event()
        self._now = asyncio.Event()

    @property
    def is_asked(self) -> bool:
        """Whether dispatching has to stop."""
        return self._asked.is_set()

    def ask(self, reason: StopReason, *, at_once: bool = False) -> None:
        """Stop dispatching; with ``at_once``, or when asked before, do not wait for what is in flight either."""
        if self._asked.is_set() or at_once:
            self._now.set()
        self.reason = self.reason or reason
        self._asked.set()

    async def asked(self) -> None:
        """Return when dispatching has to stop."""
        await self._asked.wait()

    async def asked_within(self, limit_s: float) -> bool:
        """Whether dispatching has to stop, now or within ``limit_s`` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._asked.wait()
        return self._asked.is_set()

    async def at_once(self) -> None:
        """Return when in-flight work has to be given up: asked twice, or the margin is over."""
        await self._asked.wait()
        try:
            async with asyncio.timeout(self.margin_s):
                await self._now.wait()
        except TimeoutError:
            return

"""Several things that a job does at once: the first error of them, their end, and being asked to stop meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from collector.stop import StopRequest

T = TypeVar("T")


async def unless_stopped(work: Coroutine[Any, Any, T], stop: StopRequest) -> T | None:
    """The result of ``work``, or None when a stop was asked for before it was there; it is cancelled then."""
    working = asyncio.ensure_future(work)
    asked = asyncio.ensure_future(stop.asked())
    try:
        await asyncio.wait({working, asked}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        asked.cancel()
        if not working.done():
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)


def error_of(tasks: Sequence[asyncio.Task[None]]) -> BaseException | None:
    """The error of the first of ``tasks`` that ended with one."""
    ended = [task for task in tasks if task.done() and not task.cancelled()]
    return next((error for task in ended if (error := task.exception()) is not None), None)


async def end_all(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Cancel ``tasks`` and wait for their end, whatever it is."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

"""An end to what a task awaits: ``asyncio.timeout`` for less, in the one place that every attempt goes through."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class TimeLimit:
    """A context of at most ``limit_s`` seconds: then the task in it is cancelled, and TimeoutError raised where it ends.

    A cancellation that somebody else asked for at the same time goes on as one.
    """

    __slots__ = ("_cancelling", "_handle", "_limit_s", "_task", "is_over")

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        #: Whether the time was over before the work was done.
        self.is_over = False

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a time limit needs a task that it can cancel")
        self._task = task
        self._cancelling = task.cancelling()
        self._handle = task.get_loop().call_later(self._limit_s, self._end)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._handle.cancel()
        is_alone = self.is_over and self._task.uncancel() <= self._cancelling
        if is_alone and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _end(self) -> None:
        self.is_over = True
        self._task.cancel()

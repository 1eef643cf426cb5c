"""Group commit: everything that waits becomes durable with one write and one fsync a file.

What one batch is, and in which order its parts become durable, is the journal's affair.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from collector.formats.events import Event
from collector.journal import Entry, Journal

#: Seconds in which a batch is gathered while several wait for each. A batch costs two changes of threads, two fsyncs and three
#: looks at the fence, however many are in it.
_GATHERED_FOR_S: Final = 0.002


class GroupCommitter:
    """Lets many tasks of one event loop wait for one commit. Everything that arrives while a batch is written is the next."""

    def __init__(self, journal: Journal, apply: Callable[[list[Entry], list[Event]], None]) -> None:
        self._journal = journal
        self._apply = apply
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")
        self._waiting: list[tuple[tuple[Entry, ...], asyncio.Future[None]]] = []
        self._pump: asyncio.Task[None] | None = None
        #: Kept: asking for the running loop is a call of the system each time.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._error: Exception | None = None
        #: Whether several waited for the last batch; a single worker gains nothing by waiting for others.
        self._is_shared = False

    async def commit(self, *entries: Entry) -> None:
        """Return when ``entries`` are durable and applied, all in one batch. Raises what broke the journal, now or earlier."""
        if self._error is not None:
            raise self._error
        loop = self._loop = self._loop or asyncio.get_running_loop()
        # A future for each caller: one caller's cancellation must not cancel the others' wait.
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.append((entries, waiter))
        if self._pump is None:
            self._pump = loop.create_task(self._write_all())
        await waiter

    async def idle(self) -> None:
        """Return when nothing waits to be written: what a cancelled wait left is recorded all the same."""
        if self._pump is not None:
            await asyncio.shield(self._pump)

    async def close(self) -> None:
        """Wait for the batch that is being written, even when this call or the wait for it is cancelled; end the thread."""
        try:
            await self.idle()
        finally:
            # Blocks for one batch at most: files closed under a write in flight could be other files by then.
            self._thread.shutdown()

    async def _write_all(self) -> None:
        batch: list[tuple[tuple[Entry, ...], asyncio.Future[None]]] = []
        try:
            while self._waiting:
                if self._is_shared:
                    await asyncio.sleep(_GATHERED_FOR_S)
                batch, self._waiting = self._waiting, []
                self._is_shared = len(batch) > 1
                try:
                    await self._write([entry for entries, _ in batch for entry in entries])
                except Exception as error:  # noqa: BLE001 - handed on to everybody who waits; left here it would hang them
                    self._error = error
                for _, waiter in batch:
                    _tell(waiter, self._error)
                batch = []
        except asyncio.CancelledError:
            self._error = RuntimeError("the commit of the journal was cancelled")
            for _, waiter in [*batch, *self._waiting]:
                waiter.cancel()
            raise
        self._pump = None

    async def _write(self, batch: list[Entry]) -> None:
        if self._error is not None:
            raise self._error
        loop = asyncio.get_running_loop()
        self._apply(batch, await loop.run_in_executor(self._thread, self._journal.commit, batch))


def _tell(waiter: asyncio.Future[None], error: Exception | None) -> None:
    if waiter.done():
        return
    if error is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(error)

"""Tasks that wait for one commit: what happens to them, and to the files, when a wait is cancelled or a write fails."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from collector.commit import GroupCommitter
from collector.formats.events import SessionEnded
from collector.journal import Entry

ENTRY = Entry(SessionEnded(run_id="r", session=0, seq=-1, at="", reason="x"))


class SlowWriter:
    """Takes a batch, and gives it back when it is let go."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.is_writing = False

    def commit(self, batch: list[Entry]) -> list[Any]:
        self.is_writing = True
        self.begun.set()
        self.go_on.wait(10)
        self.batches.append(len(batch))
        self.is_writing = False
        return [entry.draft for entry in batch]


class FullWriter(SlowWriter):
    def commit(self, batch: list[Entry]) -> list[Any]:
        super().commit(batch)
        raise OSError(28, "No space left on device")


async def begin(committer: GroupCommitter, writer: SlowWriter) -> asyncio.Task[None]:
    first = asyncio.create_task(committer.commit(ENTRY))
    await asyncio.to_thread(writer.begun.wait, 10)
    return first


def test_a_cancelled_wait_leaves_the_record_and_the_waits_of_others() -> None:
    writer, applied = SlowWriter(), []

    async def run() -> None:
        committer = GroupCommitter(writer, lambda batch, _: applied.append(len(batch)))  # type: ignore[arg-type]
        first = await begin(committer, writer)
        second, third = asyncio.create_task(committer.commit(ENTRY)), asyncio.create_task(committer.commit(ENTRY))
        await asyncio.sleep(0)
        second.cancel()
        writer.go_on.set()
        await asyncio.wait_for(asyncio.gather(first, third), 5)
        await committer.close()

    asyncio.run(run())

    assert (writer.batches, applied) == ([1, 2], [1, 2])


@pytest.mark.parametrize("is_pump_cancelled", [False, True], ids=["close-is-cancelled", "everything-is-cancelled"])
def test_closing_waits_for_the_write_in_flight_even_when_it_is_cancelled(is_pump_cancelled: bool) -> None:
    """A file closed under a write may be another file by the time the write is done."""
    writer = SlowWriter()

    async def run() -> bool:
        committer = GroupCommitter(writer, lambda *_: None)  # type: ignore[arg-type]
        await begin(committer, writer)
        closing = asyncio.create_task(committer.close())
        await asyncio.sleep(0)
        threading.Timer(0.2, writer.go_on.set).start()
        others = asyncio.all_tasks() - {asyncio.current_task()} if is_pump_cancelled else {closing}
        for task in others:
            task.cancel()  # type: ignore[union-attr]
        await asyncio.wait({closing})
        return writer.is_writing

    assert not asyncio.run(run())
    assert writer.batches == [1]


def test_what_waits_behind_a_failed_batch_is_never_written() -> None:
    writer = FullWriter()

    async def run() -> list[Any]:
        committer = GroupCommitter(writer, lambda *_: None)  # type: ignore[arg-type]
        first = await begin(committer, writer)
        second = asyncio.create_task(committer.commit(ENTRY))
        await asyncio.sleep(0)
        writer.go_on.set()
        results: list[Any] = list(await asyncio.gather(first, second, committer.commit(ENTRY), return_exceptions=True))
        await committer.close()
        return results

    assert [type(result) for result in asyncio.run(run())] == [OSError] * 3
    assert writer.batches == [1]


def test_a_fold_that_refuses_what_was_written_is_everybodys_error() -> None:
    writer = SlowWriter()
    writer.go_on.set()

    def refuse(*_: object) -> None:
        raise ValueError("two outcomes of one attempt")

    async def run() -> None:
        committer = GroupCommitter(writer, refuse)  # type: ignore[arg-type]
        for _ in range(2):
            with pytest.raises(ValueError, match="two outcomes"):
                await asyncio.wait_for(committer.commit(ENTRY), 5)
        await committer.close()

    asyncio.run(run())

    assert writer.batches == [1]


def test_what_is_committed_together_is_one_batch_and_one_wait() -> None:
    writer, applied = SlowWriter(), []
    writer.go_on.set()

    async def run() -> None:
        committer = GroupCommitter(writer, lambda batch, _: applied.append(len(batch)))  # type: ignore[arg-type]
        await committer.commit(ENTRY, ENTRY)
        await committer.close()

    asyncio.run(run())

    assert (writer.batches, applied) == ([2], [2])


def test_a_batch_that_is_cancelled_while_it_is_gathered_lets_nobody_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.commit._GATHERED_FOR_S", 60.0)
    writer = SlowWriter()
    writer.go_on.set()

    async def run() -> list[Any]:
        committer = GroupCommitter(writer, lambda *_: None)  # type: ignore[arg-type]
        await asyncio.gather(committer.commit(ENTRY), committer.commit(ENTRY))
        before = asyncio.all_tasks()
        waiting = asyncio.create_task(committer.commit(ENTRY))
        await asyncio.sleep(0.01)
        (pump,) = asyncio.all_tasks() - before - {waiting}
        pump.cancel()
        return list(await asyncio.wait_for(asyncio.gather(waiting, committer.commit(ENTRY), return_exceptions=True), 5))

    first, second = asyncio.run(run())

    assert (type(first), type(second)) == (asyncio.CancelledError, RuntimeError)
    assert writer.batches == [2]

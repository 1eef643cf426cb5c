"""Signals that ask a command to stop: the first says what it waits for, the second ends the waiting."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from collector.stop import StopReason, StopRequest
from orchestrate.asked_to_stop import stop_on_signals


@pytest.mark.parametrize(
    ("number", "reason"), [(signal.SIGINT, StopReason.INTERRUPTED), (signal.SIGTERM, StopReason.TERMINATED)]
)
def test_the_first_signal_asks_and_is_told_and_the_second_ends_the_waiting(
    number: signal.Signals, reason: StopReason, capsys: pytest.CaptureFixture[str]
) -> None:
    async def signalled() -> StopRequest:
        stop = stop_on_signals("requests", "The same command goes on from here.")
        os.kill(os.getpid(), number)
        await asyncio.wait_for(stop.asked(), 10)
        waiting = asyncio.create_task(stop.at_once())
        await asyncio.sleep(0)
        assert not waiting.done()
        os.kill(os.getpid(), number)
        await asyncio.wait_for(waiting, 10)
        return stop

    stop = asyncio.run(signalled())

    assert stop.reason is reason
    assert capsys.readouterr().err == (
        "\nstopping: requests in flight may finish within 30 s, the same signal again ends it at once. "
        "The same command goes on from here.\n"
    )

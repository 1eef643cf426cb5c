"""A limit on what a task awaits: what ends it, what does not, and what it leaves of the task."""

from __future__ import annotations

import asyncio
import time

import pytest
import uvloop

from collector.loop.time_limit import TimeLimit


async def _limited(limit_s: float, work_s: float) -> str:
    with TimeLimit(limit_s):
        await asyncio.sleep(work_s)
    return "done"


def test_work_within_its_time_is_left_alone() -> None:
    async def scenario() -> tuple[str, int]:
        said = await _limited(30, 0)
        await asyncio.sleep(0.01)
        task = asyncio.current_task()
        assert task is not None
        return said, task.cancelling()

    assert uvloop.run(scenario()) == ("done", 0)


def test_work_beyond_its_time_is_a_timeout_and_the_task_goes_on() -> None:
    async def scenario() -> tuple[str, int]:
        with pytest.raises(TimeoutError):
            await _limited(0.01, 30)
        task = asyncio.current_task()
        assert task is not None
        return await _limited(30, 0), task.cancelling()

    assert uvloop.run(scenario()) == ("done", 0)


@pytest.mark.parametrize("limit_s", [0.01, 30], ids=["at-the-same-time", "before-its-time"])
def test_a_cancellation_of_somebody_else_stays_one(limit_s: float) -> None:
    async def scenario() -> tuple[bool, bool]:
        limits: list[TimeLimit] = []

        async def work() -> None:
            with TimeLimit(limit_s) as limit:
                limits.append(limit)
                await asyncio.sleep(30)

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.005, task.cancel)
        # Whatever is due by now is due in one turn of the loop, before the task runs again.
        time.sleep(0.05)
        await asyncio.wait({task})
        return task.cancelled(), limits[0].is_over

    assert uvloop.run(scenario()) == (True, limit_s < 1)


def test_a_limit_within_a_limit_ends_only_its_own_work() -> None:
    async def scenario() -> str:
        with TimeLimit(30):
            with pytest.raises(TimeoutError):
                await _limited(0.01, 30)
            return "outer goes on"

    assert uvloop.run(scenario()) == "outer goes on"


def test_an_error_of_the_work_is_its_own() -> None:
    async def scenario() -> None:
        with TimeLimit(30):
            raise KeyError("its own")

    with pytest.raises(KeyError):
        uvloop.run(scenario())

"""Worker processes: reuse, isolation, and that none outlives its owner."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import uvloop

from collector.verifiers.workers import WorkerPool, WorkError, WorkTimeoutError

HERE = "tests.verifiers.test_workers"


def work(task: Any) -> Any:
    match task:
        case "pid":
            return os.getpid()
        case "hang":
            while True:
                pass
        case "die":
            os._exit(3)
        case "print":
            print("noise")
            return "quiet"
        case _:
            raise ValueError(f"no task {task}")


async def outcomes(*tasks: str, timeout_s: float = 5) -> list[Any]:
    found: list[Any] = []
    async with WorkerPool(f"{HERE}:work", size=1, timeout_s=timeout_s) as pool:
        for task in tasks:
            try:
                found.append(await pool.run(task))
            except (WorkError, WorkTimeoutError) as error:
                found.append(error)
    return found


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"


def test_one_worker_serves_many_tasks_and_ends_with_its_pool() -> None:
    first, raised, second, printed = uvloop.run(outcomes("pid", "other", "pid", "print"))

    assert first == second != os.getpid()
    assert isinstance(raised, WorkError)
    assert str(raised) == "ValueError: no task other"
    assert printed == "quiet"
    assert not is_alive(first)


@pytest.mark.parametrize(("bad", "error"), [("hang", WorkTimeoutError), ("die", WorkError)])
def test_a_lost_worker_is_replaced(bad: str, error: type[Exception]) -> None:
    before, lost, after = uvloop.run(outcomes("pid", bad, "pid", timeout_s=1))

    assert isinstance(lost, error)
    assert before != after
    assert not is_alive(before)


def test_a_target_that_cannot_be_loaded_is_an_error_and_no_hang() -> None:
    async def scenario() -> None:
        async with WorkerPool("no_such_module:work", size=1, timeout_s=1) as pool:
            await pool.run("pid")

    with pytest.raises(WorkError):
        uvloop.run(scenario())


def test_a_cancelled_task_leaves_no_worker_behind() -> None:
    async def scenario() -> int:
        async with WorkerPool(f"{HERE}:work", size=1, timeout_s=60) as pool:
            pid = await pool.run("pid")
            task = asyncio.create_task(pool.run("hang"))
            await asyncio.sleep(0.2)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert not is_alive(pid)
            return await pool.run("pid")

    assert not is_alive(uvloop.run(scenario()))


@pytest.mark.parametrize("task", [pytest.param("print", id="idle"), pytest.param("hang", id="busy")])
def test_a_worker_does_not_outlive_an_owner_that_was_killed(task: str) -> None:
    program = (
        "import asyncio\n"
        "from collector.verifiers.workers import WorkerPool\n"
        "async def main():\n"
        f"    async with WorkerPool('{HERE}:work', size=1, timeout_s=0.5) as pool:\n"
        "        print(await pool.run('pid'), flush=True)\n"
        f"        asyncio.get_running_loop().create_task(pool.run('{task}'))\n"
        "        await asyncio.sleep(0.1)\n"
        "        print('sent', flush=True)\n"
        "        await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert owner.stdout.readline() == "sent\n"
        owner.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 15
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)

    assert not is_alive(pid)

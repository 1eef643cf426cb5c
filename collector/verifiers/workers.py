"""Grading that may never end, run in worker processes that are killed when their time is up.

A backtracking regular expression and a symbolic comparison hold the interpreter's lock, so neither a thread nor a signal
ends them, and the event loop would stand still. Workers are started fresh, never forked: a forked child would inherit the
shard's lock. They end by themselves when this process does, because their standard input does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Final, Self

from collector import jsonl

#: Longest line between the two processes: a text of 10 MB, escaped, with room to spare.
_LINE_BYTES: Final = 128 << 20
#: A worker that imports sympy on a busy machine needs seconds; it gets them once, before its first task.
_START_S: Final = 120.0
#: How much longer than its limit a task may run when its parent is gone.
_ORPHAN_S: Final = 5.0


class WorkTimeoutError(Exception):
    """A task did not end within its time; its worker was killed."""


class WorkError(Exception):
    """A task raised, or its worker died; the message says which."""


class WorkerPool:
    """Up to ``size`` processes that run ``target`` (``module:function``, JSON values in and out), one task at a time each."""

    def __init__(self, target: str, *, size: int, timeout_s: float) -> None:
        self._target = target
        self._timeout_s = timeout_s
        self._free = asyncio.Semaphore(size)
        self._idle: list[asyncio.subprocess.Process] = []
        self._all: set[asyncio.subprocess.Process] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        for process in list(self._all):
            await self._end(process)

    async def run(self, task: Any) -> Any:
        """What the target returns for ``task``. Raises WorkTimeoutError or WorkError."""
        async with self._free:
            process = self._idle.pop() if self._idle else await self._start()
            try:
                reply = await asyncio.wait_for(_exchange(process, task), self._timeout_s)
            except TimeoutError as error:
                raise WorkTimeoutError(f"it did not end within {self._timeout_s:g} s") from error
            else:
                self._idle.append(process)
            finally:
                if process not in self._idle:
                    await self._end(process)
        if "error" in reply:
            raise WorkError(reply["error"])
        return reply["value"]

    async def _start(self) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "from collector.verifiers.workers import serve; serve()",
            self._target,
            str(self._timeout_s),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)},
        )
        self._all.add(process)
        try:
            await asyncio.wait_for(_read(process), _START_S)
        except TimeoutError as error:
            await self._end(process)
            raise WorkError(f"its worker did not start within {_START_S:g} s") from error
        except WorkError:
            await self._end(process)
            raise
        return process

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        self._all.discard(process)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _exchange(process: asyncio.subprocess.Process, task: Any) -> dict[str, Any]:
    if process.stdin is None:
        raise AssertionError("a worker is started with a pipe")
    process.stdin.write(jsonl.dumps(task) + b"\n")
    with contextlib.suppress(ConnectionError):
        await process.stdin.drain()
    return await _read(process)


async def _read(process: asyncio.subprocess.Process) -> dict[str, Any]:
    if process.stdout is None:
        raise AssertionError("a worker is started with a pipe")
    line = await process.stdout.readline()
    if not line.endswith(b"\n"):
        raise WorkError("its worker process died")
    return jsonl.loads(line)


def serve() -> None:
    """The life of a worker: say that it is ready, then answer one line per line until its standard input ends."""
    target, limit_s = _load(sys.argv[1]), float(sys.argv[2])
    # An interrupt from the terminal is the parent's to answer.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = sys.stdout.buffer
    # What a library prints must not stand between the answers.
    sys.stdout = sys.stderr
    out.write(b"{}\n")
    out.flush()
    for line in sys.stdin.buffer:
        # Should the parent be killed, nobody else would end a task that never does: the kernel does it.
        signal.setitimer(signal.ITIMER_REAL, limit_s + _ORPHAN_S)
        reply = _answer(target, jsonl.loads(line))
        signal.setitimer(signal.ITIMER_REAL, 0)
        out.write(jsonl.dumps(reply) + b"\n")
        out.flush()


def _load(name: str) -> Callable[[Any], Any]:
    from importlib import import_module  # noqa: PLC0415 - used by the worker only

    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


def _answer(target: Callable[[Any], Any], task: Any) -> dict[str, Any]:
    try:
        return {"value": target(task)}
    except Exception as error:  # noqa: BLE001 - it crosses to the other process, which raises it there
        return {"error": f"{type(error).__name__}: {str(error)[:500]}"}

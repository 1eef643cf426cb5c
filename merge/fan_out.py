"""Many independent tasks of a merge, done by forked processes; their results come back in the order of the tasks."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any, Final, TypeVar

R = TypeVar("R")

_MOST_WORKERS: Final = 8
#: Tasks handed out ahead of the one whose result is waited for, for each worker: more would pile up results in memory.
_AHEAD: Final = 3
_PR_SET_PDEATHSIG: Final = 1

#: What a worker works on: the tasks as they were when it was forked, so that nothing but a number has to be sent to it.
_tasks: Sequence[Callable[[], Any]] = ()


def run_tasks(tasks: Sequence[Callable[[], R]], *, is_worth_it: bool) -> Iterator[R]:
    """The result of each of ``tasks``, in order; raises what the first that fails raises.

    They run in this process when ``is_worth_it`` says that forking would cost more, or when there is one processor. Tasks
    see what this process held when the first result was asked for; what they change in memory is lost, results must pickle.
    """
    workers = min(len(tasks), len(os.sched_getaffinity(0)), _MOST_WORKERS)
    # A fork of a process with threads may inherit a lock that nobody will ever release.
    if not is_worth_it or workers < 2 or threading.active_count() > 1:
        for task in tasks:
            yield task()
        return
    context = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(tasks,))
    pending: deque[Future[R]] = deque()
    try:
        for number in range(len(tasks)):
            pending.append(pool.submit(_run, number))
            if len(pending) > _AHEAD * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(tasks: Sequence[Callable[[], Any]]) -> None:
    """Make this forked process a worker: it dies with its parent, and leaves it to the parent what a signal means."""
    global _tasks  # noqa: PLW0603 - a worker has one list of tasks, for life
    _tasks = tasks
    # What was inherited lives as long as this process. Looking for garbage in it would copy its pages.
    gc.freeze()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _run(number: int) -> Any:
    return _tasks[number]()

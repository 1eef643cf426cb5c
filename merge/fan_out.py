"""Many independent tasks of a merge, done by forked processes; their results come back in the order of the tasks."""

from __future__ import annotations

import ctypes
import gc
import logging
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Final, TypeVar

R = TypeVar("R")

_log = logging.getLogger(__name__)

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
    A task is done again here when the process that had it died, so it must be one that may be done twice.
    """
    workers = min(len(tasks), len(os.sched_getaffinity(0)), _MOST_WORKERS)
    # A fork of a process with threads may inherit a lock that nobody will ever release.
    if not is_worth_it or workers < 2 or threading.active_count() > 1:
        for task in tasks:
            yield task()
        return
    context = multiprocessing.get_context("fork")
    pool = _Pool(ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(tasks,)))
    pending: deque[tuple[Callable[[], R], Future[R] | None]] = deque()
    try:
        for number, task in enumerate(tasks):
            pending.append((task, pool.submit(number)))
            if len(pending) > _AHEAD * workers:
                yield pool.result(*pending.popleft())
        while pending:
            yield pool.result(*pending.popleft())
    finally:
        pool.executor.shutdown(cancel_futures=True)


class _Pool:
    """An executor whose end (a killed worker, no memory for another) turns the rest into work of this process."""

    def __init__(self, executor: ProcessPoolExecutor) -> None:
        self.executor = executor
        self._is_broken = False

    def submit(self, number: int) -> Future[Any] | None:
        if self._is_broken:
            return None
        try:
            return self.executor.submit(_run, number)
        except (BrokenProcessPool, OSError) as error:
            self._give_up(error)
            return None

    def result(self, task: Callable[[], R], future: Future[R] | None) -> R:
        if future is not None:
            try:
                return future.result()
            except BrokenProcessPool as error:
                self._give_up(error)
        return task()

    def _give_up(self, error: Exception) -> None:
        if not self._is_broken:
            self._is_broken = True
            _log.warning("the merge goes on in one process: %s", error)


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

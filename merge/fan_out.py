"""Work shared out among processes: its results come back in the order of its items, and a killed process costs only time."""

from __future__ import annotations

import ctypes
import gc
import logging
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from typing import Any, Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_log = logging.getLogger(__name__)

_MOST_WORKERS: Final = 8
#: Items handed out ahead of the one whose result is waited for, for each worker: more would pile up results in memory.
_AHEAD: Final = 3
_PR_SET_PDEATHSIG: Final = 1

#: What a worker does with each item: as it was when the worker was forked, so that nothing but the item has to be sent to it.
_work: Callable[[Any], Any] | None = None


def default_workers() -> int:
    """One for each processor that this process may use, eight at most."""
    return min(len(os.sched_getaffinity(0)), _MOST_WORKERS)


def run_tasks(tasks: Sequence[Callable[[], R]], *, is_worth_it: bool) -> Generator[R]:
    """The result of each of ``tasks``, in order; raises what the first that fails raises.

    They run in this process when ``is_worth_it`` says that forking would cost more. ``share_out`` says the rest.
    """
    workers = min(len(tasks), default_workers()) if is_worth_it else 1
    return share_out(lambda number: tasks[number](), range(len(tasks)), alone=2, workers=workers)


def share_out(
    work: Callable[[T], R], items: Iterable[T], *, alone: int, workers: int | None = None, may_start_afresh: bool = False
) -> Generator[R]:
    """``work`` of each of ``items``, in order; raises what the first that fails raises. ``items`` is read bit by bit.

    Everything is done in this process when there are fewer than ``alone`` items or two ``workers`` (default: processors).
    Workers see what this process held when the first result was asked for; what they change in memory is lost, items and
    results must pickle. An item is worked on again here, when no worker lives any more, after the one that had it died: so
    ``work`` must be something that may be done twice. Beside other threads nothing is forked; ``may_start_afresh`` says that
    ``work`` pickles, too, and workers that inherit nothing are worth their start then.
    """
    source = iter(items)
    first = list(islice(source, alone))
    everything = chain(first, source)
    workers = default_workers() if workers is None else workers
    # A fork of a process with threads may inherit a lock that nobody will ever release.
    can_fork = threading.active_count() == 1
    if workers < 2 or len(first) < alone or not (can_fork or may_start_afresh):
        yield from map(work, everything)
        return
    context = multiprocessing.get_context("fork" if can_fork else "spawn")
    pool = _Pool(work, ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(work,)))
    pending: deque[tuple[T, Future[R] | None]] = deque()
    try:
        for item in everything:
            pending.append((item, pool.submit(item)))
            if len(pending) > _AHEAD * workers:
                yield pool.result(*pending.popleft())
        while pending:
            yield pool.result(*pending.popleft())
    finally:
        pool.executor.shutdown(cancel_futures=True)


class _Pool:
    """An executor whose end (a killed worker, no memory for another) turns the rest into work of this process."""

    def __init__(self, work: Callable[[Any], Any], executor: ProcessPoolExecutor) -> None:
        self.executor = executor
        self._work = work
        self._others = multiprocessing.active_children()
        self._is_broken = False

    def submit(self, item: Any) -> Future[Any] | None:
        if self._is_broken:
            return None
        try:
            return self.executor.submit(_run, item)
        except (BrokenProcessPool, OSError) as error:
            self._give_up(error)
            return None

    def result(self, item: Any, future: Future[Any] | None) -> Any:
        if future is not None:
            try:
                return future.result()
            except (BrokenProcessPool, CancelledError) as error:
                self._give_up(error)
        return self._work(item)

    def _give_up(self, error: Exception) -> None:
        if not self._is_broken:
            self._is_broken = True
            # Two must not be at one item, and an executor that could not start all of its workers never ends the others.
            for child in multiprocessing.active_children():
                if child not in self._others:
                    child.terminate()
            self.executor.shutdown(cancel_futures=True)
            _log.warning("the work goes on in one process: %s", error)


def _begin(work: Callable[[Any], Any]) -> None:
    """Make this process a worker: it dies with its parent, and leaves it to the parent what a signal means."""
    global _work  # noqa: PLW0603 - a worker has one work, for life
    _work = work
    # What was inherited lives as long as this process. Looking for garbage in it would copy its pages.
    gc.freeze()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _run(item: Any) -> Any:
    if _work is None:
        raise AssertionError("a worker that was never begun")
    return _work(item)

"""Work shared out among processes: its results come back in the order of its items, and a killed process costs only time."""

from __future__ import annotations

import ctypes
import gc
import logging
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from itertools import chain, islice
from multiprocessing.connection import Connection
from multiprocessing.context import ForkContext, SpawnContext
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeAlias, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_log = logging.getLogger(__name__)

_MOST_WORKERS: Final = 8
#: Items handed out ahead of the one whose result is waited for, for each worker: more would pile up results in memory.
_AHEAD: Final = 3
_PR_SET_PDEATHSIG: Final = 1

#: An item, and where its result is awaited.
_Task: TypeAlias = tuple[Any, Future[Any]]


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
    workers = default_workers() if workers is None else workers
    source = iter(items)
    first = list(islice(source, max(alone, workers)))
    everything = chain(first, source)
    # A fork of a process with threads may inherit a lock that nobody will ever release.
    can_fork = threading.active_count() == 1
    if workers < 2 or len(first) < alone or not (can_fork or may_start_afresh):
        yield from map(work, everything)
        return
    pool = _Pool(work)
    pending: deque[tuple[T, Future[Any]]] = deque()
    try:
        context = multiprocessing.get_context("fork") if can_fork else multiprocessing.get_context("spawn")
        pool.start(context, min(workers, len(first)))
        for item in everything:
            pending.append((item, pool.submit(item)))
            if len(pending) > _AHEAD * workers:
                yield pool.result(*pending.popleft())
        while pending:
            yield pool.result(*pending.popleft())
    finally:
        pool.end()


class _LostError(Exception):
    """A worker that did not answer; its item is to be worked on again."""


class _Pool:
    """Workers, each with a line of its own. When one is killed or cannot be started, the rest becomes work of this process.

    What workers share, a lock or a pipe, would stay as a killed one left it, and nobody would see its end. A line has two ends.
    """

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self._work = work
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._workers: list[BaseProcess] = []
        self._lines: list[Connection] = []
        self._drivers: list[threading.Thread] = []
        self._is_over = False
        # An error that ends the program keeps whoever waits for results alive, and the program waits for its processes.
        self._at_exit = Finalize(None, self.end, exitpriority=0)

    def start(self, context: ForkContext | SpawnContext, workers: int) -> None:
        """Start ``workers``, or none when one of them cannot be started."""
        try:
            for _ in range(workers):
                self._start_worker(context)
        except OSError as error:
            self._give_up(error)
            return
        # After the last fork, which must not be beside threads.
        drivers = [threading.Thread(target=_drive, args=(line, self._tasks), daemon=True) for line in self._lines]
        try:
            for driver in drivers:
                driver.start()
                self._drivers.append(driver)
        except RuntimeError as error:
            self._give_up(error)

    def _start_worker(self, context: ForkContext | SpawnContext) -> None:
        here, there = multiprocessing.Pipe()
        self._lines.append(here)
        # Nobody but the two may hold an end: the other sees that one has died when no process holds its end any more.
        foreign = list(self._lines) if isinstance(context, ForkContext) else []
        worker = context.Process(target=_serve, args=(self._work, there, foreign))
        with there:
            worker.start()
        self._workers.append(worker)

    def submit(self, item: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if not self._is_over:
            self._tasks.put((item, future))
        return future

    def result(self, item: Any, future: Future[Any]) -> Any:
        if not self._is_over or future.done():
            try:
                return future.result()
            except _LostError as error:
                self._give_up(error)
        return self._work(item)

    def _give_up(self, error: Exception) -> None:
        if not self._is_over:
            self.end()
            _log.warning("the work goes on in one process: %s", error)

    def end(self) -> None:
        """End all workers, whatever they are at: two must not be at one item. What has no result by then never gets one."""
        self._is_over = True
        self._at_exit.cancel()
        for worker in self._workers:
            # Not SIGTERM: one that has not begun yet would take it as this process does.
            worker.kill()
        for worker in self._workers:
            worker.join()
        try:
            while True:
                self._tasks.get_nowait()
        except Empty:
            pass
        for _ in self._drivers:
            self._tasks.put(None)
        for driver in self._drivers:
            driver.join()
        for line in self._lines:
            line.close()
        self._workers, self._drivers, self._lines = [], [], []


def _drive(line: Connection, tasks: SimpleQueue[_Task | None]) -> None:
    """Have the worker at the other end of ``line`` do one task after the other, until there are no more or it is lost."""
    while (task := tasks.get()) is not None:
        item, future = task
        try:
            line.send(item)
            is_done, value = line.recv()
        except (EOFError, OSError):
            # Half a message and its end are an OSError.
            future.set_exception(_LostError("a process that helped has ended"))
            return
        except Exception as error:  # noqa: BLE001 - whatever cannot be sent or read is worked on where it need not be
            future.set_exception(_LostError(str(error)))
            return
        if is_done:
            future.set_result(value)
        else:
            future.set_exception(value)


def _serve(work: Callable[[Any], Any], line: Connection, foreign: Sequence[Connection]) -> None:
    """Be a worker until the parent is gone: it dies with its parent, and leaves it to the parent what a signal means."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # What was inherited lives as long as this process. Looking for garbage in it would copy its pages.
    gc.freeze()
    for other in foreign:
        other.close()
    try:
        while True:
            line.send_bytes(_answer(work, line.recv()))
    except (EOFError, ConnectionError):
        return


def _answer(work: Callable[[Any], Any], item: Any) -> bytes:
    """Whether ``work`` came to an end, and its result or its error. An error that does not pickle ends the worker."""
    try:
        return pickle.dumps((True, work(item)), pickle.HIGHEST_PROTOCOL)
    except BaseException as error:  # noqa: BLE001 - raised by the parent
        error.add_note(f"In a process that helped:\n{traceback.format_exc()}")
        return pickle.dumps((False, error), pickle.HIGHEST_PROTOCOL)

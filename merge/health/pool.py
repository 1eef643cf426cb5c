"""Slices over processes, in order; in this process alone where a pool would not pay or cannot be had."""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from typing import Final

from merge.health.checks import Check
from merge.health.digest import Digest
from merge.health.slices import Slice
from merge.health.worker import decode_digests, digest_slice

_log = logging.getLogger(__name__)

#: A process takes about 0.3 s to start, in which one alone checks this many slices.
_ALONE: Final = 8
#: Slices handed out per worker: enough that none waits, few enough that results do not pile up.
_AHEAD: Final = 4
MOST_WORKERS: Final = 8


def default_workers() -> int:
    """One for each processor that this process may use, eight at most."""
    return min(len(os.sched_getaffinity(0)), MOST_WORKERS)


def digest_slices(slices: Iterable[Slice], ignored: frozenset[Check], workers: int) -> Iterator[Digest]:
    """The digests of all rows in ``slices``, in order. A pool that breaks costs time and no row."""
    source = iter(slices)
    first = list(islice(source, _ALONE))
    everything = chain(first, source)
    if workers <= 1 or len(first) < _ALONE:
        for part in everything:
            yield from decode_digests(digest_slice(part, ignored))
        return
    # A fork would copy the locks of the caller's threads; workers that are started afresh inherit nothing.
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as executor:
        pool = _Pool(executor, ignored)
        waiting: deque[tuple[Slice, Future[bytes] | None]] = deque()
        for part in everything:
            waiting.append((part, pool.submit(part)))
            if len(waiting) >= workers * _AHEAD:
                yield from pool.result(*waiting.popleft())
        while waiting:
            yield from pool.result(*waiting.popleft())


class _Pool:
    """An executor whose end (a killed worker, no memory for another) turns the rest into work of this process."""

    def __init__(self, executor: ProcessPoolExecutor, ignored: frozenset[Check]) -> None:
        self._executor = executor
        self._ignored = ignored
        self._is_broken = False

    def submit(self, part: Slice) -> Future[bytes] | None:
        if self._is_broken:
            return None
        try:
            return self._executor.submit(digest_slice, part, self._ignored)
        except (BrokenProcessPool, OSError) as error:
            self._give_up(error)
            return None

    def result(self, part: Slice, future: Future[bytes] | None) -> list[Digest]:
        if future is not None:
            try:
                return decode_digests(future.result())
            except BrokenProcessPool as error:
                self._give_up(error)
        return decode_digests(digest_slice(part, self._ignored))

    def _give_up(self, error: Exception) -> None:
        if not self._is_broken:
            self._is_broken = True
            _log.warning("the health check goes on in one process: %s", error)

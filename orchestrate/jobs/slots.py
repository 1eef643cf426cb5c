"""Slots of a run on one machine: as many of its jobs work at once as there are."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import filelock

from collector import durable
from orchestrate.jobs.processes import local_job_id
from orchestrate.runs.directory import RunDir

#: Seconds between two looks for a free slot.
_PAUSE_S: Final = 0.2


@asynccontextmanager
async def local_slot(run: RunDir, count: int) -> AsyncGenerator[int]:
    """One of ``count`` slots of the run, waited for as long as it takes; free again when this process ends, however it ends.

    That this process waits no more is in the run directory from then on, also when the slot is free again: it may publish.
    """
    durable.make_dir(run.slot(0).parent)
    while True:
        for number in range(count):
            lock = filelock.FileLock(run.slot(number), timeout=0, thread_local=False, fallback_to_soft=False)
            try:
                lock.acquire()
            except filelock.Timeout:
                continue
            try:
                durable.create_missing(run.begun(local_job_id(os.getpid())))
                yield number
            finally:
                lock.release()
            return
        await asyncio.sleep(_PAUSE_S)

"""Many shards read side by side: what a merge waits for longest is the folding of their journals."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Final

from collector.artifacts import RunArtifacts
from collector.settings import RetrySettings
from merge.shards import ShardView, read_shard

#: Bytes of journals below which one process is done before a second one has begun.
_WORTH_IT: Final = 16 << 20
_MOST_WORKERS: Final = 8


def read_shards(runs: Sequence[RunArtifacts], retry: RetrySettings) -> list[ShardView]:
    """``read_shard`` of each, in order; raises what the first that cannot be read raises."""
    workers = min(len(runs), len(os.sched_getaffinity(0)), _MOST_WORKERS)
    # A fork of a process with threads may inherit a lock that nobody will ever release.
    if workers < 2 or threading.active_count() > 1 or _journal_bytes(runs) < _WORTH_IT:
        return [read_shard(run, retry) for run in runs]
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("fork")) as pool:
        return list(pool.map(partial(read_shard, retry=retry), runs))


def _journal_bytes(runs: Sequence[RunArtifacts]) -> int:
    return sum(run.journal.stat().st_size for run in runs if run.journal.exists())

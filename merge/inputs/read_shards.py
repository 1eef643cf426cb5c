"""Many shards read side by side: what a merge waits for longest is the folding of their journals."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from collector.artifacts import RunArtifacts
from collector.settings import RetrySettings
from merge.fan_out import run_tasks
from merge.inputs.shards import ShardView, read_shard

#: Bytes of journals below which one process is done before a second one has begun.
_WORTH_IT: Final = 16 << 20


def read_shards(runs: Sequence[RunArtifacts], retry: RetrySettings) -> list[ShardView]:
    """``read_shard`` of each, in order; raises what the first that cannot be read raises."""
    tasks = [partial(read_shard, run, retry) for run in runs]
    return list(run_tasks(tasks, is_worth_it=_journal_bytes(runs) >= _WORTH_IT))


def _journal_bytes(runs: Sequence[RunArtifacts]) -> int:
    return sum(run.journal.stat().st_size for run in runs if run.journal.exists())

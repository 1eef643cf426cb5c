"""Metrics of a run that is a single shard: they stand beside its rows, which are the projection already."""

from __future__ import annotations

from collector.artifacts import RunArtifacts
from collector.settings import RetrySettings
from merge.aggregate import publish_aggregate
from merge.generation import agent_name, whole_inventory
from merge.row_blocks import read_rows
from merge.shards import read_shard
from merge.table import RowTable


def publish_metrics(artifacts: RunArtifacts, retry: RetrySettings) -> None:
    """Publish the aggregate of ``artifacts``. Nothing else is written. Raises CorruptArtifactError for a damaged row."""
    shard = read_shard(artifacts, retry)
    table = RowTable()
    for block in read_rows([shard]):
        table.see(block)
    publish_aggregate(
        artifacts.aggregate,
        table,
        whole_inventory([shard]),
        agent=agent_name(shard.manifest),
        expected=shard.manifest.expected,
    )

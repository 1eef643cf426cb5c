"""Metrics of a run that is a single shard: they stand beside its rows, which are the projection already."""

from __future__ import annotations

from collector import durable
from collector.artifacts import RunArtifacts
from collector.settings import RetrySettings
from merge.inputs.identity import bind_inputs
from merge.inputs.shards import read_shard
from merge.inputs.sources import read_source
from merge.publication.generation import plan_generation, publish_metrics_only
from merge.publication.lock import waiting_lock


def publish_metrics(artifacts: RunArtifacts, retry: RetrySettings) -> None:
    """Publish the aggregate of ``artifacts``, where a crash left nothing. Raises CorruptArtifactError for a damaged row."""
    inputs = bind_inputs([read_source(artifacts)], allow_partial=True)
    generation = plan_generation(inputs, [read_shard(artifacts, retry)])
    # Two at once would mistake each other's temporary files for those of a crash.
    with waiting_lock(artifacts.merge_lock):
        durable.sweep(artifacts.aggregate)
        publish_metrics_only(artifacts, generation)

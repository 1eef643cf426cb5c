"""Metrics of a run that is a single shard: they stand beside its rows, which are the projection already."""

from __future__ import annotations

from collector.artifacts import RunArtifacts
from collector.settings import RetrySettings
from merge.inputs.identity import bind_inputs
from merge.inputs.shards import read_shard
from merge.inputs.sources import read_source
from merge.publication.generation import plan_generation, publish_metrics_only


def publish_metrics(artifacts: RunArtifacts, retry: RetrySettings) -> None:
    """Publish the aggregate of ``artifacts``. Nothing else is written. Raises CorruptArtifactError for a damaged row."""
    inputs = bind_inputs([read_source(artifacts)], allow_partial=True)
    publish_metrics_only(artifacts, plan_generation(inputs, [read_shard(artifacts, retry)]))

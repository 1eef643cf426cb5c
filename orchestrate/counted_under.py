"""Under which settings of retries the rollouts of inputs are counted where nobody names others."""

from __future__ import annotations

from collections.abc import Sequence

from collector import durable
from collector.artifacts import RunArtifacts
from collector.errors import RefusedError
from collector.settings import RetrySettings
from collector.state.recorded_retry import recorded_retry
from orchestrate.config.load import settings_of
from orchestrate.output_place import run_around
from orchestrate.runs.directory import RunDir, read_plan


def retry_of(runs: Sequence[RunArtifacts]) -> RetrySettings:
    """Those of the plan for a benchmark of a submitted run, as ``status`` and its jobs use them; else the recorded ones."""
    root = run_around(runs[0].rollouts)
    if root is None:
        return recorded_retry(runs)
    run = RunDir(root)
    try:
        plan = read_plan(run)
    except RefusedError:
        # A plan with literal values of variables is its owner's alone.
        return recorded_retry(runs)
    place = durable.real_path(runs[0].rollouts)
    for benchmark in plan.benchmarks:
        if place.is_relative_to(run.benchmark(benchmark)):
            return settings_of(plan.config, benchmark.name, output=run.merged(benchmark).rollouts).retry
    return recorded_retry(runs)

"""How many jobs of a run may exist on one machine, and how to have more shards than that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collector.errors import ConfigError
from orchestrate.config.load import load_config
from orchestrate.executors.local import LocalProcesses
from orchestrate.runs.directory import RunDir
from orchestrate.runs.plan import BenchmarkPlan, SubmitPlan


def check(shards: int, *, compute: dict[str, Any] | None = None, job: dict[str, Any] | None = None) -> None:
    data = {
        "compute": {"here": {"type": "local", **(compute or {})}},
        "driver": {"benchmarks": {"math": {"run": {"input_jsonl_fpath": "x", "verifier": {"type": "exact_match"}}}}},
        "job": {"output_path": "/runs", **(job or {})},
    }
    config = load_config(data, where=Path("x.yaml"), environ={}).config
    benchmark = BenchmarkPlan(
        name="math", slug="math", run_id="r", shard_sizes=[1] * shards, source_digest="s", inventory_digest="i"
    )
    plan = SubmitPlan(
        name="n", version="0", created_at="", config_file="", cwd="/", identity_digest="d", identity={}, config=config,
        benchmarks=[benchmark],
    )  # fmt: skip
    LocalProcesses(RunDir(Path("/runs/n")), plan).check()


def test_more_jobs_than_may_exist_are_refused_with_the_ways_out() -> None:
    with pytest.raises(ConfigError) as error:
        check(65)

    assert "65 jobs on one machine" in str(error.value)
    assert "compute.here.max_processes is 64. Raise it, put several shards into a job (job.pack)" in str(error.value)


def test_as_many_as_may_exist_are_accepted() -> None:
    check(64)
    check(65, compute={"max_processes": 65})
    check(640, job={"pack": 10})
    with pytest.raises(ConfigError, match="65 jobs"):
        check(641, job={"pack": 10})

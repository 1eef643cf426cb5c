"""Finished runs for exporters, with their settings beside them and a secret that must not leave."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from collector.artifacts import RunArtifacts
from collector.settings import RunSettings
from merge.command import merge_paths
from orchestrate.masked_config import publish_config
from tests.merge.build import answered, fill_all, plan

PROBE = "hf_PROBE123"


def merged_run(
    directory: Path,
    *,
    benchmark: str = "bench",
    tasks: int = 4,
    repeats: int = 2,
    run_id: str | None = None,
    outcome: Callable[[int, int], Any] = lambda task, _: answered(float(task % 2)),
    **changes: Any,
) -> RunArtifacts:
    """A merged run of two shards with masked settings."""
    made = plan(directory, shards=2, tasks=tasks, repeats=repeats, benchmark=benchmark, run_id=run_id)
    fill_all(made, outcome)
    merge_paths([made.directory], made.merged.rollouts)
    values: dict[str, Any] = {
        "input_jsonl_fpath": "tasks.jsonl",
        "output_jsonl_fpath": "out.jsonl",
        "policy_model_name": "m",
        "policy_api_key": PROBE,
        "responses_create_params": {"max_output_tokens": 512},
        "verifier": "exact_match",
        **changes,
    }
    address = {"policy_base_url": f"https://user:{PROBE}@host/v1?key={PROBE}"}
    publish_config(made.merged, RunSettings.model_validate(values).model_copy(update=address))
    return made.merged

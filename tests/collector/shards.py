"""Shards for tests, made by the product itself: a dataset, its preparation, and collection with the scripted agent."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from collector.artifacts import RunArtifacts
from collector.collect import CollectResult, collect
from collector.preparation.inventory_repair import restore_inventory
from collector.preparation.materialize import materialize
from collector.preparation.prepare import new_manifest, prepare_shard
from collector.session import JobFacts
from collector.settings import RetrySettings, RunSettings
from collector.shard.lock import ShardLock
from collector.shard.store import RolloutStore
from collector.stop import StopRequest

RUN_ID = "0" * 32


def write_dataset(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_bytes(b"".join(orjson.dumps({"responses_create_params": {"input": "?"}, **row}) + b"\n" for row in rows))
    return path


def settings_for(directory: Path, **changes: Any) -> RunSettings:
    retry = {"backoff_s": 0.001, "backoff_max_s": 0.002, **changes.pop("retry", {})}
    return RunSettings.model_validate(
        {
            "input_jsonl_fpath": directory / "tasks.jsonl",
            "output_jsonl_fpath": directory / "run" / "rollouts.jsonl",
            "agent": {"type": "scripted", "log": directory / "asked.log", **changes.pop("agent", {})},
            "verifier": {"type": "echoed"},
            "retry": retry,
            **changes,
        }
    )


def prepare(settings: RunSettings, lock: ShardLock | None = None) -> RunArtifacts:
    artifacts = RunArtifacts(settings.output_jsonl_fpath)
    made = materialize(settings)
    manifest = new_manifest(settings, made, benchmark="test", run_id=RUN_ID)
    prepare_shard(artifacts, made, manifest, is_unsafe=settings.allow_unsafe_resume, fence=lock.check if lock else None)
    return artifacts


def fill(settings: RunSettings, *, stop: StopRequest | None = None) -> CollectResult:
    """One whole collector session, lock included."""

    async def run() -> CollectResult:
        artifacts = RunArtifacts(settings.output_jsonl_fpath)
        with ShardLock(artifacts.lock) as lock:
            prepare(settings, lock)
            restore_inventory(artifacts, settings, lock.check)
            return await collect(settings, artifacts, lock, job=JobFacts(), stop=stop or StopRequest())

    return asyncio.run(run())


def asked(directory: Path) -> Counter[str]:
    """How often each rollout was asked for, over all sessions."""
    log = directory / "asked.log"
    return Counter(log.read_text().split()) if log.exists() else Counter()


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().split(b"\n") if line]


def rollout_ids(path: Path) -> list[str]:
    return [f"{row['_ng_task_index']}-{row['_ng_rollout_index']}" for row in rows_of(path)]


def states(settings: RunSettings, retry: RetrySettings | None = None) -> dict[str, int]:
    with RolloutStore.read(RunArtifacts(settings.output_jsonl_fpath)) as store:
        counts = store.coverage(retry or settings.retry).states
    return {state.value: count for state, count in counts.items() if count}


def recorded(artifacts: RunArtifacts) -> dict[str, str]:
    """Every rollout with a recorded result, and its row; what must never change again."""
    if not artifacts.manifest.exists():
        return {}
    with RolloutStore.read(artifacts) as store:
        data = artifacts.rollouts.read_bytes()
        done = [i for i in range(len(store.inventory)) if store.history.past(i).state in {"measured", "masked", "unscored"}]
        spans = {store.inventory.rollout_id(i): (store.history.offsets[i], store.history.lengths[i]) for i in done}
    return {rollout: data[offset : offset + length].decode() for rollout, (offset, length) in spans.items()}


def attempt_of(row: dict[str, Any]) -> tuple[str, int]:
    """The rollout and the attempt that a row is of."""
    return f"{row['_ng_task_index']}-{row['_ng_rollout_index']}", row.get("_ng_attempt_index", 0)

"""What ``gym eval merge`` does: inputs as a person names them, one target, one published generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collector import durable
from collector.artifacts import RunArtifacts
from collector.coverage import Coverage
from collector.errors import IncompleteError
from collector.settings import RetrySettings
from merge.generation import Generation, plan_generation, publish_generation, whole_inventory
from merge.identity import Inputs
from merge.lock import DEFAULT_WAIT_S, waiting_lock
from merge.receipt import Receipt
from merge.shards import read_shard
from merge.sources import resolve_sources
from merge.target import check_target


@dataclass(frozen=True, slots=True)
class MergeReport:
    """What was published."""

    receipt: Receipt
    coverage: Coverage


def merge_paths(
    inputs: Sequence[str | Path],
    target: Path,
    *,
    allow_partial: bool = False,
    retry: RetrySettings | None = None,
    wait_s: float = DEFAULT_WAIT_S,
) -> MergeReport:
    """Merge the shards that ``inputs`` name into ``target`` with its coverage, metrics and receipt.

    Everything is checked before anything is written: NotFoundError, IdentityError, RefusedError, CorruptArtifactError, and
    IncompleteError when rollouts are unfinished under ``retry`` and ``allow_partial`` is off. Inputs are never changed.
    """
    retry = retry or RetrySettings()
    sources = resolve_sources(inputs, allow_partial=allow_partial)
    check_target(target, sources.artifacts)
    merged = RunArtifacts(target)
    generation = _checked(sources, retry, allow_partial=allow_partial)
    durable.make_dir(target.absolute().parent)
    with waiting_lock(merged.merge_lock, timeout_s=wait_s):
        check_target(target, sources.artifacts)
        receipt = publish_generation(merged, generation)
    return MergeReport(receipt, generation.coverage)


def _checked(sources: Inputs, retry: RetrySettings, *, allow_partial: bool) -> Generation:
    shards = [read_shard(artifacts, retry) for artifacts in sources.artifacts]
    whole_inventory(shards)
    generation = plan_generation(sources, shards)
    if generation.coverage.unfinished and not allow_partial:
        open_shards = [str(shard.artifacts.rollouts) for shard in shards if not shard.coverage.is_final]
        raise IncompleteError(
            f"{generation.coverage.unfinished} rollouts are unfinished, in: {', '.join(open_shards)}.",
            "Resume them, or merge with --allow-partial, which labels the output.",
        )
    return generation

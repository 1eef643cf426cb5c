"""What every job does last: merge its benchmark when all of its shards are final, exactly once however many jobs try."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from collector.artifacts import RunArtifacts
from collector.errors import NotFoundError, RefusedError
from collector.formats.manifest import Manifest, read_manifest
from collector.settings import RetrySettings
from collector.state.coverage import Coverage
from merge.inputs.identity import Inputs, bind_inputs
from merge.inputs.read_shards import read_shards
from merge.inputs.shards import ShardView, read_shard
from merge.publication.generation import Generation, plan_generation, publish_generation, published_receipt
from merge.publication.lock import waiting_lock
from merge.publication.partial import partial_name, withdraw_partial
from merge.publication.receipt import Receipt
from merge.publication.target import check_targets


class MergeState(StrEnum):
    """How a tail found or left its benchmark."""

    #: Some shard is missing or not final; nothing was written.
    WAITING = "waiting"
    #: This call published the projection.
    MERGED = "merged"
    #: It was published already and is verified.
    ALREADY_MERGED = "already_merged"


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """The benchmark's coverage now and, unless it waits, its projection: the receipt and where it stands."""

    state: MergeState
    coverage: Coverage
    receipt: Receipt | None = None
    published: RunArtifacts | None = None


def merge_when_final(
    merged: RunArtifacts,
    shards: Sequence[RunArtifacts],
    *,
    benchmark: str,
    retry: RetrySettings,
    allow_partial: bool = False,
) -> MergeOutcome:
    """Publish the projection of ``shards`` at ``merged`` when all of them are final.

    With ``allow_partial`` what there is of them is published all the same, at ``partial_name`` of that path until it is whole.
    Any number of callers at once publish one generation; a crashed one is redone by the next. Raises NotFoundError when no
    shard is prepared, RefusedError for a wrong set of shards or a target that may not be written, CorruptArtifactError.
    """
    inputs = _bound(shards, benchmark)
    generation = plan_generation(inputs, read_shards(inputs.artifacts, retry))
    if generation.is_partial and not allow_partial:
        return MergeOutcome(MergeState.WAITING, generation.coverage)
    # A whole result takes the place of the partial one, which goes.
    places = (merged.rollouts, partial_name(merged.rollouts))
    check_targets(places, inputs.artifacts)
    with waiting_lock(merged.merge_lock):
        # While this one waited for the lock, others may have published, and collectors may have gone on.
        check_targets(places, inputs.artifacts)
        generation = _refreshed(generation, shards, benchmark, retry)
        if generation.is_partial and not allow_partial:
            return MergeOutcome(MergeState.WAITING, generation.coverage)
        return _published(merged, generation)


def _published(merged: RunArtifacts, generation: Generation) -> MergeOutcome:
    target = RunArtifacts(partial_name(merged.rollouts)) if generation.is_partial else merged
    receipt = published_receipt(target, generation)
    state = MergeState.ALREADY_MERGED

    def withdraw() -> None:
        if not generation.is_partial:
            withdraw_partial(merged)

    if receipt is None:
        receipt, state = publish_generation(target, generation, withdraw), MergeState.MERGED
    else:
        # Whoever merged may have been ended before all of the partial result was gone.
        withdraw()
    return MergeOutcome(state, generation.coverage, receipt, target)


def _bound(shards: Sequence[RunArtifacts], benchmark: str) -> Inputs:
    """The shards that are prepared. One without a manifest counts as missing, which the coverage shows."""
    prepared: list[tuple[RunArtifacts, Manifest]] = []
    for artifacts in shards:
        manifest = read_manifest(artifacts.manifest)
        if manifest is not None:
            prepared.append((artifacts, manifest))
    if not prepared:
        raise NotFoundError(f"no shard of benchmark {benchmark!r} is prepared.", "Its collectors did not start yet.")
    inputs = bind_inputs(prepared, allow_partial=True)
    found = inputs.shards[0][1].benchmark
    if found != benchmark:
        raise RefusedError(f"shards of benchmark {found!r}, not of {benchmark!r}.", "", inputs.artifacts[0].manifest)
    return inputs


def _refreshed(generation: Generation, shards: Sequence[RunArtifacts], benchmark: str, retry: RetrySettings) -> Generation:
    known = {view.artifacts: view for view in generation.shards}
    inputs = _bound(shards, benchmark)
    return plan_generation(inputs, [_current(known.get(artifacts), artifacts, retry) for artifacts in inputs.artifacts])


def _current(view: ShardView | None, artifacts: RunArtifacts, retry: RetrySettings) -> ShardView:
    return view if view is not None and view.is_unchanged() else read_shard(artifacts, retry)

"""What ``gym eval aggregate`` and ``merge`` do: inputs as a person names them, one target, one published generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from collector import durable
from collector.artifacts import RunArtifacts
from collector.errors import IncompleteError
from collector.settings import RetrySettings
from collector.state.coverage import Coverage
from collector.text.counted import agreeing, counted
from merge.inputs.identity import bind_inputs
from merge.inputs.read_shards import read_shards
from merge.inputs.sources import are_legacy, find_runs, read_source
from merge.legacy.inputs import read_legacy
from merge.plugins import check_plugins
from merge.publication.generation import (
    Generation,
    Reporting,
    plan_generation,
    plan_legacy,
    publish_generation,
    publish_reports,
)
from merge.publication.lock import waiting_lock
from merge.publication.partial import partial_name, whole_name, withdraw_partial
from merge.publication.receipt import Receipt
from merge.publication.target import check_names, check_replaced, check_targets


@dataclass(frozen=True, slots=True)
class MergeReport:
    """What was published, and where. ``receipt`` is None when rows were not asked for."""

    target: Path
    receipt: Receipt | None
    coverage: Coverage
    is_expected_known: bool = True
    #: Sentences for people: torn lines that were passed over, inventories that are not there.
    notes: tuple[str, ...] = ()


def merge_paths(
    inputs: Sequence[str | Path],
    target: Path,
    *,
    allow_partial: bool = False,
    retry: RetrySettings | None = None,
    reporting: Reporting | None = None,
    with_rows: bool = True,
) -> MergeReport:
    """Merge the shards that ``inputs`` name into ``target`` with its coverage, metrics and receipt.

    Everything is checked before anything is written: NotFoundError, IdentityError, RefusedError, CorruptArtifactError, and
    IncompleteError when rollouts are unfinished under ``retry`` and ``allow_partial`` is off. Inputs are never changed. What is
    partial goes to ``partial_name(target)``, so that its name says so wherever it is copied, and goes away when all is there.
    Without ``with_rows`` only coverage and metrics are written.
    """
    reporting = reporting or Reporting()
    check_plugins(reporting.plugins)
    runs = find_runs(inputs)
    check_names(target, runs)
    # A whole result with its rows takes the place of the partial one, which goes.
    places = [target, partial_name(target)] if with_rows or allow_partial else [target]
    _check_places(places, runs)
    generation = _planned(runs, retry or RetrySettings(), reporting, allow_partial=allow_partial)
    _check_finished(generation, allow_partial=allow_partial)
    generation.agents()
    target = partial_name(target) if generation.is_partial else target
    merged = RunArtifacts(target)
    durable.make_dir(target.absolute().parent)
    receipt = None
    whole = RunArtifacts(whole_name(target))
    with waiting_lock(whole.merge_lock):
        _check_places(places, runs)
        if with_rows:
            is_whole = not generation.is_partial and whole == merged
            receipt = publish_generation(merged, generation, partial(withdraw_partial, whole) if is_whole else lambda: None)
        else:
            publish_reports(merged, generation)
    return MergeReport(target, receipt, generation.coverage, generation.is_expected_known, _notes(generation))


def _check_places(places: Sequence[Path], runs: Sequence[RunArtifacts]) -> None:
    check_targets(places, runs)
    for place in places:
        check_replaced(place, runs)


def _planned(runs: Sequence[RunArtifacts], retry: RetrySettings, reporting: Reporting, *, allow_partial: bool) -> Generation:
    if are_legacy(runs):
        return plan_legacy(read_legacy(runs, retry), reporting)
    inputs = bind_inputs([read_source(run) for run in runs], allow_partial=allow_partial)
    return plan_generation(inputs, read_shards(inputs.artifacts, retry), reporting)


def _check_finished(generation: Generation, *, allow_partial: bool) -> None:
    if not generation.coverage.unfinished or allow_partial:
        return
    names = [name for name, coverage in generation.parts if not coverage.is_final]
    if generation.legacy is None:
        names = [str(shard.artifacts.rollouts) for shard in generation.shards if not shard.coverage.is_final]
    left = generation.coverage.unfinished
    raise IncompleteError(
        f"{counted(left, 'rollout')} {agreeing(left, 'are')} unfinished, in: {', '.join(names)}.",
        "Resume them, or merge with --allow-partial, which labels the output.",
    )


def _notes(generation: Generation) -> tuple[str, ...]:
    if generation.legacy is None:
        return ()
    without = [
        f"{path}: no inventory beside it: what was expected is not known." for path in generation.legacy.without_inventory
    ]
    return (*generation.legacy.notes, *without, "Files without a manifest: nothing vouches for their identity.")

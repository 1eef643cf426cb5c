"""The end of every job: its benchmark merged once all shards are final, then exported, each exactly once.

Exports begin when the merge lock is free again, so that a slow upload delays no other finisher; each destination has a lock of
its own. An export that fails changes nothing about the evaluation: its result stands beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from collector.artifacts import RunArtifacts
from collector.settings import RetrySettings
from collector.state.coverage import Coverage
from exporters.base import ExportResult
from exporters.once import export_once
from merge.health.run import HealthChoice, note_when_new
from merge.publication.receipt import Receipt
from merge.tail import MergeState, merge_when_final


@dataclass(frozen=True, slots=True)
class TailResult:
    """How a benchmark stands: its coverage, and once it is merged the receipt, the place and each export's result by name."""

    state: MergeState
    coverage: Coverage
    receipt: Receipt | None = None
    exports: dict[str, ExportResult] = field(default_factory=dict[str, ExportResult])
    #: What the health check of this call found, or why it could not be made, in one line; None: it made none.
    health: str | None = None
    published: RunArtifacts | None = None


def finish_benchmark(
    merged: RunArtifacts,
    shards: Sequence[RunArtifacts],
    *,
    benchmark: str,
    retry: RetrySettings,
    exports: Mapping[str, Mapping[str, object]],
    health: HealthChoice | None = None,
    allow_partial: bool = False,
) -> TailResult:
    """Merge ``shards`` into ``merged`` when all are final, or with ``allow_partial`` beside it, then export by ``exports``.

    The projection's health is checked once between the two, unless ``health`` is None; that never makes a benchmark fail.

    Any number of callers at once give one projection and one export a destination. ``waiting``: nothing was written. Raises
    what ``merge_when_final`` raises; an export's failure, its bad configuration included, is in ``TailResult.exports``.
    """
    outcome = merge_when_final(merged, shards, benchmark=benchmark, retry=retry, allow_partial=allow_partial)
    if outcome.receipt is None or outcome.published is None:
        return TailResult(outcome.state, outcome.coverage)
    merged = outcome.published
    note = None if health is None else note_when_new(merged, health, since=merged.receipt)
    digest = outcome.receipt.output.sha256
    results = {name: export_once(name, values, merged, digest) for name, values in exports.items()}
    return TailResult(outcome.state, outcome.coverage, outcome.receipt, results, note, merged)

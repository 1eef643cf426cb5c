"""The end of every job: its benchmark merged once all shards are final, then exported, each exactly once.

Exports begin when the merge lock is free again, so that a slow upload delays no other finisher; each destination has a lock of
its own. An export that fails changes nothing about the evaluation: its result stands beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from collector.artifacts import RunArtifacts
from collector.coverage import Coverage
from collector.errors import GymEvalError
from collector.settings import RetrySettings
from exporters.base import Exporter, ExportResult, RunExportConfig
from exporters.ledger import Ledger
from exporters.registry import make_exporter
from merge.health.run import HealthChoice, note_when_new
from merge.lock import DEFAULT_WAIT_S, waiting_lock
from merge.receipt import Receipt
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
    wait_s: float = DEFAULT_WAIT_S,
) -> TailResult:
    """Merge ``shards`` into ``merged`` when all are final, or with ``allow_partial`` beside it, then export by ``exports``.

    The projection's health is checked once between the two, unless ``health`` is None; that never makes a benchmark fail.

    Any number of callers at once give one projection and one export a destination. ``waiting``: nothing was written. Raises
    what ``merge_when_final`` raises; an export's failure, its bad configuration included, is in ``TailResult.exports``.
    """
    outcome = merge_when_final(merged, shards, benchmark=benchmark, retry=retry, allow_partial=allow_partial, wait_s=wait_s)
    if outcome.receipt is None or outcome.published is None:
        return TailResult(outcome.state, outcome.coverage)
    merged = outcome.published
    note = None if health is None else note_when_new(merged, health, since=merged.receipt)
    digest = outcome.receipt.output.sha256
    results = {name: export_once(name, values, merged, digest, wait_s=wait_s) for name, values in exports.items()}
    return TailResult(outcome.state, outcome.coverage, outcome.receipt, results, note, merged)


def export_once(
    name: str,
    values: Mapping[str, object],
    merged: RunArtifacts,
    projection_sha256: str,
    *,
    wait_s: float = DEFAULT_WAIT_S,
) -> ExportResult:
    """Export the projection unless its ledger says that this was done already and it still stands."""
    try:
        exporter = make_exporter(name, values, merged)
        ledger = Ledger(merged, name, exporter.destination, projection_sha256)
        with waiting_lock(_lock_path(merged, exporter.destination), timeout_s=wait_s):
            return _under_lock(exporter, ledger)
    except (OSError, GymEvalError) as error:
        return ExportResult.failed(str(error))


def _under_lock(exporter: Exporter[RunExportConfig], ledger: Ledger) -> ExportResult:
    last = ledger.last()
    if last is not None and last.event == "succeeded" and exporter.still_stands(last.evidence):
        return ExportResult.succeeded("already exported", f"destination: {ledger.destination}", evidence=last.evidence)
    # A process that died, or a disk that failed, after everything had arrived must not make every later export fail on it.
    found = exporter.find_complete(ledger.artifacts) if last is not None else None
    if found is None:
        ledger.start()
        found = _export_anew(exporter, ledger.artifacts)
    ledger.end(found)
    return found


def _export_anew(exporter: Exporter[RunExportConfig], artifacts: RunArtifacts) -> ExportResult:
    try:
        exporter.sweep()
    except (OSError, GymEvalError) as error:
        return ExportResult.failed(str(error))
    return exporter.export(artifacts)


def _lock_path(merged: RunArtifacts, destination: str) -> Path:
    return merged.companion(f"_export_{hashlib.sha256(destination.encode()).hexdigest()[:12]}.lock")

"""One export of one projection to one place, made once however many ask for it, and recorded in the run's ledger."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from collector.artifacts import RunArtifacts
from collector.errors import GymEvalError
from exporters.base import Exporter, ExportResult, RunExportConfig, told
from exporters.ledger import Ledger
from exporters.registry import make_exporter
from merge.publication.lock import waiting_lock


def export_once(
    name: str,
    values: Mapping[str, object],
    merged: RunArtifacts,
    projection_sha256: str,
) -> ExportResult:
    """Export the projection unless its ledger says that this was done already and it still stands."""
    try:
        exporter = make_exporter(name, values, merged)
        ledger = Ledger(merged, name, exporter.destination, projection_sha256)
        with waiting_lock(_lock_path(merged, exporter.destination)):
            return _under_lock(exporter, ledger)
    except (OSError, GymEvalError) as error:
        return ExportResult.failed(told(error))


def _under_lock(exporter: Exporter[RunExportConfig], ledger: Ledger) -> ExportResult:
    last = ledger.last()
    if last is not None and last.event == "succeeded" and exporter.still_stands(last.evidence):
        return ExportResult.succeeded("already exported", f"destination: {ledger.destination}", evidence=last.evidence)
    # A process that died, or a disk that failed, after everything had arrived must not make every later export fail on it.
    found = exporter.find_complete(ledger.artifacts) if last is not None else None
    if found is None:
        exporter.supersede(ledger.superseded())
        ledger.start()
        found = _export_anew(exporter, ledger.artifacts)
    else:
        _clear_away(exporter)
    ledger.end(found)
    return found


def _clear_away(exporter: Exporter[RunExportConfig]) -> None:
    """Remove what an export left that was killed when all had arrived: the old folder, when it had the new one in its place."""
    # It is in nobody's way, and what stands is whole: the next export that is made anew tells why it cannot be removed.
    with suppress(OSError, GymEvalError):
        exporter.sweep()


def _export_anew(exporter: Exporter[RunExportConfig], artifacts: RunArtifacts) -> ExportResult:
    try:
        exporter.sweep()
    except (OSError, GymEvalError) as error:
        return ExportResult.failed(told(error))
    return exporter.export(artifacts)


def _lock_path(merged: RunArtifacts, destination: str) -> Path:
    return merged.companion(f"_export_{hashlib.sha256(destination.encode()).hexdigest()[:12]}.lock")

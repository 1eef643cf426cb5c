"""One export asked for by hand: recorded in the run's ledger where the run is ours, and nowhere where it is not."""

from __future__ import annotations

import os
from collections.abc import Mapping

from collector.artifacts import RunArtifacts
from exporters.base import ExportResult, told
from exporters.registry import make_exporter
from merge.publication.receipt import file_sha256, read_receipt


def export_run(name: str, values: Mapping[str, object], artifacts: RunArtifacts) -> ExportResult:
    """Export ``artifacts``; a repeated export that still stands is a success that does nothing. Raises ConfigError.

    Files of others and folders that cannot be written are exported without a record: nothing is added beside them.
    """
    exporter = make_exporter(name, values, artifacts)
    try:
        digest = _recordable_digest(artifacts)
    except OSError as error:
        return ExportResult.failed(told(error))
    if digest is None:
        return exporter.export(artifacts)
    # Brings locks and the ledger, of which files of others have none.
    from exporters.once import export_once  # noqa: PLC0415

    return export_once(name, values, artifacts, digest)


def _recordable_digest(artifacts: RunArtifacts) -> str | None:
    is_ours = artifacts.receipt.exists() or artifacts.manifest.exists()
    if not is_ours or not os.access(artifacts.rollouts.absolute().parent, os.W_OK):
        return None
    # A damaged receipt is the exporter's to report.
    return file_sha256(artifacts.rollouts)


def published_digest(artifacts: RunArtifacts) -> str | None:
    """The digest of the projection at ``artifacts``; None before it is merged. Raises CorruptArtifactError."""
    receipt = read_receipt(artifacts.receipt)
    return None if receipt is None else receipt.output.sha256

"""Whose merged result stands at a path, by what lies beside it: read as far as it can be, of whichever format. Reads only."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from collector import jsonl
from collector.artifacts import RunArtifacts


def told_beside(merged: RunArtifacts) -> dict[str, Any] | None:
    """What says whose result stands at ``merged``: its receipt, or the coverage of one without; None for neither."""
    receipt = _record_at(merged.receipt)
    if receipt is not None:
        return receipt
    # Other programs write coverages, too; those say nothing of a run.
    coverage = _record_at(merged.coverage) or {}
    return coverage if {"run_id", "benchmark"} <= coverage.keys() else None


def _record_at(path: Path) -> dict[str, Any] | None:
    try:
        value = jsonl.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None

"""Where a partial result stands: under a name that says so, so that a file that was copied elsewhere still tells.

``<stem>.partial.jsonl`` with companions of that stem. The whole result is published under the plain name, and what was partial
before it goes away then.
"""

from __future__ import annotations

from pathlib import Path

from collector import durable
from collector.artifacts import RunArtifacts


def partial_name(target: Path) -> Path:
    """``<stem>.partial.jsonl`` for ``<stem>.jsonl``."""
    return target if target.stem.endswith(".partial") else target.with_name(f"{target.stem}.partial{target.suffix}")


def published_at(merged: RunArtifacts) -> RunArtifacts:
    """What is published of the benchmark whose whole result belongs at ``merged``: that one, or else the partial one.

    ``merged`` itself when there is neither.
    """
    partial = RunArtifacts(partial_name(merged.rollouts))
    return partial if partial.receipt.exists() and not merged.receipt.exists() else merged


def withdraw_partial(merged: RunArtifacts) -> None:
    """Remove the partial result that the whole one at ``merged`` replaces. The caller holds the merge lock.

    Its receipt goes first: what a crash leaves is no result. The ledger of its exports stays, since they took place.
    """
    partial = RunArtifacts(partial_name(merged.rollouts))
    reports = (partial.aggregate, partial.coverage, partial.health, partial.verdicts, partial.config)
    for path in (partial.receipt, *reports, partial.rollouts):
        durable.remove(path)

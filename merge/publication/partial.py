"""Where a partial result stands: under a name that says so, so that a file that was copied elsewhere still tells.

``<stem>.partial.jsonl`` with companions of that stem. The whole result is published under the plain name, and what was partial
goes away before: a partial result that stands beside a whole one is the newer of them, made of shards that were opened again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from collector import durable, jsonl
from collector.artifacts import RunArtifacts
from collector.outcomes import RolloutState
from collector.state.coverage import Coverage
from merge.publication.told import told_beside

#: States that only an outcome can bring about, whatever the settings of retries.
_RECORDED: Final = (RolloutState.MEASURED, RolloutState.MASKED, RolloutState.UNSCORED)


def partial_name(target: Path) -> Path:
    """``<stem>.partial.jsonl`` for ``<stem>.jsonl``."""
    return target if target.stem.endswith(".partial") else target.with_name(f"{target.stem}.partial{target.suffix}")


def whole_name(target: Path) -> Path:
    """The plain name of ``target``, which may be a partial one: both are published under the lock of the plain name."""
    return target.with_name(f"{target.stem.removesuffix('.partial')}{target.suffix}")


def published_at(merged: RunArtifacts) -> RunArtifacts:
    """What is published of the benchmark whose whole result belongs at ``merged``: the partial result where there is one.

    ``merged`` itself when there is neither.
    """
    partial = RunArtifacts(partial_name(merged.rollouts))
    return partial if partial.receipt.exists() else merged


def is_current(published: RunArtifacts, now: Coverage) -> bool:
    """Whether what is published tells all that is recorded in shards whose coverage is ``now``.

    By counts alone, so that it costs nothing: no shard goes on without another attempt or another result. False without any.
    """
    try:
        told: Any = jsonl.loads(published.coverage.read_bytes())
        states = told["states"]
        return told["attempts"] == now.attempts and all(states.get(state, 0) == now.states.get(state, 0) for state in _RECORDED)
    except (OSError, ValueError, TypeError, AttributeError, KeyError):
        return False


def withdraw_partial(merged: RunArtifacts) -> None:
    """Remove the partial result whose place the whole one at ``merged`` takes. The caller holds the merge lock.

    Its receipt goes first: what a crash leaves is no result. Its coverage goes last, and tells until then whose rows those
    are: rows that nothing tells of are somebody's own, and stay. The ledger of its exports stays, since they took place.
    """
    partial = RunArtifacts(partial_name(merged.rollouts))
    if told_beside(partial) is None:
        return
    reports = (partial.aggregate, partial.health, partial.verdicts, partial.config)
    for path in (partial.receipt, *reports, partial.rollouts, partial.coverage):
        durable.remove(path)

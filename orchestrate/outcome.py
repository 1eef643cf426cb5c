"""What a coverage means for whoever asked: complete, incomplete, or nothing measured; and that a shard is what was planned."""

from __future__ import annotations

from collections.abc import Callable

from collector import jsonl
from collector.artifacts import RunArtifacts
from collector.errors import IncompleteError, NotFoundError, NothingMeasuredError
from collector.formats.manifest import digest_of, read_manifest
from collector.outcomes import RolloutState
from collector.preparation.inventory_repair import restore_inventory
from collector.preparation.prepare import experiment_of, prepare_shard
from collector.settings import RunSettings
from collector.state.coverage import Coverage
from collector.text.counted import agreeing, counted
from collector.text.visible import visible


def check_outcome(coverage: Coverage, where: str) -> None:
    """Raise NothingMeasuredError or IncompleteError unless every rollout completed and, where a score is meant, one exists."""
    kinds = ", ".join(f"{visible(kind)} {count}" for kind, count in coverage.failures_by_kind.items())
    if coverage.is_final and not coverage.measured and not coverage.states.get(RolloutState.UNSCORED, 0):
        raise NothingMeasuredError(f"nothing was measured ({kinds or 'all masked or omitted'}).", "There is no score.", where)
    if not coverage.complete:
        left = coverage.expected - coverage.completed
        state = "failed for good" if coverage.is_final else f"{agreeing(left, 'are')} not completed"
        told = counted(left, "rollout", of=coverage.expected)
        raise IncompleteError(f"{told} {state}{f' ({kinds})' if kinds else ''}.", where=where)


def check_experiment(artifacts: RunArtifacts, settings: RunSettings, fence: Callable[[], None]) -> None:
    """Raise IdentityError when the shard was prepared for another experiment than ``settings`` describe today.

    A user's own verifier code, for example, may have changed since the run was planned. With ``allow_unsafe_resume`` the
    shard is marked instead. An inventory that lost its end is made whole. The caller holds the lock, whose loss ``fence``
    tells by a FencedError.
    """
    saved = read_manifest(artifacts.manifest)
    if saved is None:
        raise NotFoundError("the shard was never prepared.", "Submit the run again.", artifacts.manifest)
    targets = (saved.config.get("agent") or {}).get("targets", ())
    config = jsonl.loads(jsonl.canonical(experiment_of(settings, targets)))
    wanted = saved.model_copy(update={"config": config, "config_digest": digest_of(config)})
    prepare_shard(artifacts, [], wanted, is_unsafe=settings.allow_unsafe_resume, fence=fence)
    restore_inventory(artifacts, settings, fence)

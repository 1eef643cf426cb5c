"""A collector's session from beginning to end: take over the shard, dispatch until nothing is left or it is time, let go."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from collector import durable
from collector.agents.base import Agent, AgentSettings
from collector.artifacts import RunArtifacts
from collector.errors import FencedError, UnavailableError
from collector.loop.breaker import CircuitBreaker
from collector.loop.dispatcher import Dispatcher
from collector.preparation.prepare import make_agent, make_verifier
from collector.session import JobFacts, ShardSession
from collector.settings import RunSettings
from collector.shard.lock import ShardLock
from collector.shard.store import RolloutStore
from collector.state.coverage import Coverage
from collector.stop import StopReason, StopRequest
from collector.verifiers.base import Verifier, VerifierSettings


class Progress(Protocol):
    """Told what happens, in the collector's event loop; must return at once."""

    def started(self, session: ShardSession) -> None:
        """A session was opened; its store says what is recorded already."""

    def changed(self) -> None:
        """An outcome was recorded."""


@dataclass(frozen=True, slots=True)
class CollectResult:
    """How a session ended: what the shard holds now, and why it stopped early if it did."""

    coverage: Coverage
    stopped: StopReason | None


async def collect(
    settings: RunSettings,
    artifacts: RunArtifacts,
    lock: ShardLock,
    *,
    job: JobFacts,
    stop: StopRequest,
    progress: Progress | None = None,
    agent: Agent[AgentSettings] | None = None,
    verifier: Verifier[VerifierSettings] | None = None,
    only: Callable[[int], bool] | None = None,
    store: RolloutStore | None = None,
) -> CollectResult:
    """Fill the prepared shard at ``artifacts`` under ``lock``, which the caller holds, until it is final or told to stop.

    ``agent`` and ``verifier`` stand in for those that ``settings`` name; ``only`` says of a rollout's key whether it may
    be dispatched; ``store`` is the shard as it was read under ``lock``.

    Raises CorruptArtifactError before any write, FencedError when the shard is lost, UnavailableError when the endpoint
    answers nobody or the verifier grades nothing. Whatever was recorded before stays recorded.
    """
    is_synced = settings.durability == "fsync"
    async with AsyncExitStack() as stack:
        # First of all: servers that are not those the run was made for are refused before a byte is written.
        answering = await stack.enter_async_context(agent or make_agent(settings))
        grading = await stack.enter_async_context(verifier or make_verifier(settings))
        session = ShardSession.open(artifacts, lock, job, is_synced=is_synced, store=store)
        stack.push_async_callback(session.abandon)
        if settings.retry.retry_invalid_judge_responses:
            session.migrate_invalid_judgements()
        if progress is not None:
            progress.started(session)
        told = _silence if progress is None else progress.changed
        dispatcher = Dispatcher(settings, session, answering, grading, stop=stop, told=told, clock=time.monotonic, only=only)
        await dispatcher.run()
        await session.settled()
        coverage = session.store.coverage(settings.retry)
        stopped = stop.reason or (StopReason.DISPATCH_BUDGET if dispatcher.upcoming.is_drained else None)
        await session.end(stopped or "final")
        _publish_coverage(artifacts, coverage, lock)
    _check_breaker(dispatcher.upcoming.breaker, settings, artifacts)
    return CollectResult(coverage, stopped)


def _check_breaker(breaker: CircuitBreaker, settings: RunSettings, artifacts: RunArtifacts) -> None:
    """Raise UnavailableError when nothing more was dispatched since all attempts failed alike."""
    if breaker.verdict is None:
        return
    # The endpoint that answered is not named as the one that failed.
    where = str(artifacts.rollouts) if breaker.is_graders else _shown(settings.policy_base_url or "")
    # The most frequent slip in an address of a model is that its end is missing.
    has_no_path = not urlsplit(where).path.strip("/")
    hint = "Most servers answer below /v1, which the URL lacks. " if breaker.is_lost and has_no_path and where else ""
    raise UnavailableError(breaker.verdict, f"{hint}{breaker.cure}", where)


def _publish_coverage(artifacts: RunArtifacts, coverage: Coverage, lock: ShardLock) -> None:
    """Everything is recorded by now: when the shard was lost meanwhile, its successor publishes the counts."""
    try:
        durable.publish(artifacts.coverage, coverage.encode(), fence=lock.check)
    except FencedError:
        return
    except FileNotFoundError:
        if lock.is_still_ours():
            raise


def _shown(address: str) -> str:
    """``address`` without a user, a password and a query: settings made in Python may skip their validation."""
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


def _silence() -> None:
    """Nobody wants to know."""

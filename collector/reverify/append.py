"""A judge's second try recorded into the run itself: its journal, its budget, its lock, and no agent.

The attempt of the new judgement is journalled before it leaves, and what the run's latest states allow decides. The shard is
read once: what is chosen, checked and counted is what the session then goes on with.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any, NamedTuple

from collector import durable, jsonl
from collector.artifacts import RunArtifacts
from collector.collect import Progress, collect
from collector.errors import IdentityError, NotFoundError
from collector.formats.differences import differences
from collector.formats.manifest import read_manifest
from collector.reverify.answers import Answers, Kind
from collector.reverify.regrade import SavedAgent
from collector.reverify.run import AnyVerifier, Chosen, Warn, check_rows, check_starts, regrader, verifier_identity
from collector.reverify.selection import Chooser, Mode
from collector.reverify.settings import ReverifySettings
from collector.reverify.source import candidates_in
from collector.session import JobFacts
from collector.settings import RunSettings
from collector.shard.lock import ShardLock
from collector.shard.store import RolloutStore
from collector.state.coverage import Coverage
from collector.stop import StopReason, StopRequest


class Judged(NamedTuple):
    """What the shard holds afterwards, why it was left early if it was, and whether there was anything to judge."""

    coverage: Coverage
    stopped: StopReason | None = None
    has_begun: bool = False


async def judge_again(
    artifacts: RunArtifacts,
    wanted: ReverifySettings,
    run: RunSettings,
    verifier: AnyVerifier,
    *,
    stop: StopRequest,
    warn: Warn,
    progress: Progress | None = None,
) -> Judged:
    """Judge the answers of the run at ``artifacts`` whose judge failed, and record it there.

    Only the verifier is asked. Nothing is judged, and no row looked at, when ``stop`` was asked for before. Raises
    IdentityError for another verifier than the run's, and what ``collect`` raises.
    """
    with ExitStack() as stack:
        lock = stack.enter_context(ShardLock(artifacts.lock, since=datetime.now(UTC).isoformat(timespec="seconds")))
        # Metrics and reports are published under locks of their own.
        for path in (*artifacts.recovery_companions, artifacts.rollouts, artifacts.coverage):
            durable.sweep(path, fence=lock.check)
        # Reading takes as long as the shard is large, and a signal is heard by the event loop only.
        store = stack.enter_context(await asyncio.to_thread(RolloutStore.read, artifacts))
        if stop.is_asked:
            return Judged(store.coverage(run.retry), stop.reason)
        chosen = stack.enter_context(await asyncio.to_thread(_choose, store, wanted, run))
        for line in chosen.chooser.warnings():
            warn(line)
        if not len(chosen.answers):
            return Judged(_counted_anew(store, run, lock))
        await asyncio.to_thread(_check, artifacts, chosen, verifier)
        await check_starts(verifier)
        grader = regrader(verifier, run, invalid_retryable=wanted.invalid_judge_retryable)
        return await _recorded(chosen, store, lock, run, grader, stop=stop, progress=progress)


async def _recorded(
    chosen: Chosen,
    store: RolloutStore,
    lock: ShardLock,
    run: RunSettings,
    grader: AnyVerifier,
    *,
    stop: StopRequest,
    progress: Progress | None,
) -> Judged:
    """A session of the run's own in which ``grader`` judges the chosen answers."""
    agent = SavedAgent(chosen.answers, chosen.chooser.reasons, run, stop, is_own=True)
    result = await collect(
        run,
        store.artifacts,
        lock,
        job=JobFacts(),
        stop=stop,
        progress=progress,
        agent=agent,
        verifier=grader,
        only=lambda key: chosen.answers.find(key) is not None,
        store=store,
    )
    if agent.trouble is not None:
        raise agent.trouble
    return Judged(result.coverage, result.stopped, has_begun=True)


def _choose(store: RolloutStore, wanted: ReverifySettings, run: RunSettings) -> Chosen:
    """What of the shard is judged again: of a result that the session makes a failure first, the row of that result."""
    chooser = Chooser(Mode.JUDGE_FAILED_ONLY, run.retry, wanted.limit)
    found = chooser.choose(candidates_in(store, retries_invalid=run.retry.retry_invalid_judge_responses))
    return Chosen(Answers.of(one for one in found if one.kind is Kind.UNJUDGED), chooser)


def _counted_anew(store: RolloutStore, run: RunSettings, lock: ShardLock) -> Coverage:
    """The coverage of a shard with nothing to judge, published: a command killed after its last verdict left older counts."""
    coverage = store.coverage(run.retry)
    if store.history.sessions:
        durable.publish(store.artifacts.coverage, coverage.encode(), fence=lock.check)
    return coverage


def _check(artifacts: RunArtifacts, chosen: Chosen, verifier: AnyVerifier) -> None:
    check_rows(chosen, verifier)
    _check_verifier(artifacts, verifier)


def _check_verifier(artifacts: RunArtifacts, verifier: AnyVerifier) -> None:
    """Raise IdentityError unless ``verifier``, whose rows are checked, is who graded the run at ``artifacts``."""
    manifest = read_manifest(artifacts.manifest)
    if manifest is None:
        cure = "Give another output, or take the files over first with gym eval run and allow_unsafe_resume."
        raise NotFoundError("there is no journal to append to.", cure, artifacts.rollouts)
    now = verifier_identity(verifier)
    saved: dict[str, Any] = manifest.config.get("verifier", {})
    if "servers" in now and saved.get("type") in {"environment", now["type"]}:
        # The environment's own judge stands in the settings of the servers that the run was made with.
        known: dict[str, Any] = saved.get("servers") or manifest.config.get("agent", {}).get("servers", {})
        differing = sorted(name for name, settings in now["servers"].items() if known.get(name) != settings)
    else:
        differing = [difference.key for difference in differences(saved, jsonl.loads(jsonl.canonical(now)))]
    if differing:
        what = f"the run was graded by another verifier ({', '.join(differing)})."
        raise IdentityError(what, "Grade into an output of its own: one run has one verifier.", artifacts.manifest)

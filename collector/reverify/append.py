"""A judge's second try recorded into the run itself: its journal, its budget, its lock, and no agent.

The attempt of the new judgement is journalled before it leaves, and what the run's latest states allow decides.
"""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

from collector import durable, jsonl
from collector.artifacts import RunArtifacts
from collector.collect import CollectResult, Progress, collect
from collector.errors import IdentityError, NotFoundError
from collector.invalid_judge import invalid_results
from collector.lock import ShardLock
from collector.manifest import flatten, read_manifest
from collector.reverify.answers import Answers, Kind
from collector.reverify.regrade import SavedAgent
from collector.reverify.run import AnyVerifier, Chosen, Warn, check_rows, regrader, verifier_identity
from collector.reverify.selection import Chooser, Mode
from collector.reverify.settings import ReverifySettings
from collector.reverify.source import candidates_in
from collector.session import JobFacts, ShardSession
from collector.settings import RunSettings
from collector.stop import StopRequest
from collector.store import RolloutStore


async def judge_again(
    artifacts: RunArtifacts,
    wanted: ReverifySettings,
    run: RunSettings,
    verifier: AnyVerifier,
    *,
    stop: StopRequest,
    warn: Warn,
    progress: Progress | None = None,
) -> CollectResult | None:
    """Judge the answers of the run at ``artifacts`` whose judge failed, and record it there; None when there are none.

    Only the verifier is asked. Raises IdentityError for another verifier than the run's, and what ``collect`` raises.
    """
    with ExitStack() as stack:
        lock = stack.enter_context(ShardLock(artifacts.lock, since=datetime.now(UTC).isoformat(timespec="seconds")))
        # Metrics and reports are published under locks of their own.
        for path in (*artifacts.recovery_companions, artifacts.rollouts, artifacts.coverage):
            durable.sweep(path, fence=lock.check)
        is_flag_failure = run.retry.retry_invalid_judge_responses
        chosen = stack.enter_context(_choose(artifacts, wanted, run, retries_invalid=is_flag_failure))
        for line in chosen.chooser.warnings():
            warn(line)
        if not len(chosen.answers):
            _renew_coverage(artifacts, run, lock)
            return None
        check_rows(chosen, verifier)
        _check_verifier(artifacts, verifier)
        async with verifier:
            # What keeps it from starting, a key that is not set for example, is told before anything is written.
            pass
        if is_flag_failure and await _migrate(artifacts, lock, run):
            # What was judged by no valid verdict lies among the failures now.
            chosen = stack.enter_context(_choose(artifacts, wanted, run, retries_invalid=False))
        answers = chosen.answers
        return await collect(
            run,
            artifacts,
            lock,
            job=JobFacts(),
            stop=stop,
            progress=progress,
            agent=SavedAgent(answers, chosen.chooser.reasons, run, copies_results=False),
            verifier=regrader(verifier, run, invalid_retryable=wanted.invalid_judge_retryable),
            only=lambda key: answers.find(key) is not None,
        )


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
        old, new = flatten(saved), flatten(jsonl.loads(jsonl.canonical(now)))
        differing = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
    if differing:
        what = f"the run was graded by another verifier ({', '.join(differing)})."
        raise IdentityError(what, "Grade into an output of its own: one run has one verifier.", artifacts.manifest)


def _choose(artifacts: RunArtifacts, wanted: ReverifySettings, run: RunSettings, *, retries_invalid: bool) -> Chosen:
    chooser = Chooser(Mode.JUDGE_FAILED_ONLY, run.retry, wanted.limit)
    with RolloutStore.read(artifacts) as store:
        found = chooser.choose(candidates_in(store, retries_invalid=retries_invalid))
        return Chosen(Answers.of(one for one in found if one.kind is Kind.UNJUDGED), chooser)


def _renew_coverage(artifacts: RunArtifacts, run: RunSettings, lock: ShardLock) -> None:
    """A command that was killed after its last verdict left the counts of before."""
    with RolloutStore.read(artifacts) as store:
        if store.history.sessions:
            durable.publish(artifacts.coverage, store.coverage(run.retry).encode(), fence=lock.check)


async def _migrate(artifacts: RunArtifacts, lock: ShardLock, run: RunSettings) -> bool:
    """Make flagged results failures, as a resume with the same setting would; no session, and False, when there are none."""
    with RolloutStore.read(artifacts) as store:
        if next(iter(invalid_results(artifacts, store.history, store.inventory, store.manifest)), None) is None:
            return False
    session = ShardSession.open(artifacts, lock, JobFacts(), is_synced=run.durability == "fsync")
    try:
        session.migrate_invalid_judgements()
    except BaseException:
        await session.abandon()
        raise
    await session.end("final")
    return True

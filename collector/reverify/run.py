"""A regrading from its source to its end: what is graded is chosen first, then an ordinary session does the rest.

Attempts are journalled before a verifier is asked, verdicts are durable before they count, and a resume does what is left:
all by the collector itself, which here reads answers instead of asking for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Self

from collector.artifacts import RunArtifacts
from collector.collect import CollectResult, Progress, collect
from collector.errors import IdentityError, LockHeldError, NoTasksError, NotFoundError
from collector.invalid_judge import invalid_results
from collector.lock import ShardLock, is_held
from collector.manifest import Manifest, flatten, read_manifest
from collector.reverify.answers import Answers, Kind
from collector.reverify.output import REVERIFY, check_output, new_manifest, prepare_output
from collector.reverify.regrade import Regrader, SavedAgent
from collector.reverify.selection import Chooser, Mode
from collector.reverify.settings import ReverifySettings
from collector.reverify.source import candidates_in
from collector.reverify.source_files import candidates_at
from collector.session import JobFacts, ShardSession
from collector.settings import RunSettings, identity_of
from collector.stop import StopRequest
from collector.store import RolloutStore
from collector.verifiers.base import Verifier, VerifierSettings

AnyVerifier = Verifier[VerifierSettings]
#: Told each warning as it is found.
Warn = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Source:
    """The files that are graded: shards of one run, or files without a manifest."""

    runs: tuple[RunArtifacts, ...]
    manifests: tuple[Manifest, ...] = ()
    #: Instead of the inventory beside files without a manifest.
    inventory: Path | None = None
    #: Whether something vouches for files without a manifest, as a merge's receipt does.
    is_verified: bool = False

    @property
    def config(self) -> dict[str, Any]:
        """The experiment as the run's manifests have it; empty for files without one."""
        return self.manifests[0].config if self.manifests else {}


@dataclass(slots=True)
class Regrading:
    """A regrading that is checked and not yet on disk. Close it, or use it as a context manager."""

    settings: RunSettings
    answers: Answers
    chooser: Chooser
    manifest: Manifest
    target: RunArtifacts
    overwrites: bool
    invalid_retryable: bool

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.answers.__exit__(*exc)


def plan_regrading(
    source: Source, wanted: ReverifySettings, run: RunSettings, verifier: AnyVerifier, *, warn: Warn
) -> Regrading:
    """What would be graded into a run of its own. Reads the source and writes nothing.

    Raises NoTasksError when there is nothing to grade, RefusedError for an output that is taken, LockHeldError while a
    collector fills the source.
    """
    for artifacts in source.runs:
        if is_held(artifacts.lock):
            raise LockHeldError("a collector fills the run at this moment.", "Wait for its end.", artifacts.rollouts)
    chooser = Chooser(wanted.mode, run.retry, wanted.limit)
    answers = _answers_of(source, chooser, retries_invalid=run.retry.retry_invalid_judge_responses)
    target = RunArtifacts(run.output_jsonl_fpath.absolute())
    for line in chooser.warnings():
        warn(line)
    if not chooser.chosen:
        raise NoTasksError(_nothing(wanted.mode), "Nothing was changed.", source.runs[0].rollouts)
    manifest = _manifest(source, wanted, answers, verifier, benchmark=target.rollouts.stem)
    check_output(
        target,
        source.runs,
        inventory_digest=manifest.inventory_digest,
        resumes=wanted.resume,
        overwrites=wanted.overwrite,
    )
    overwrites, retryable = wanted.overwrite, wanted.invalid_judge_retryable
    return Regrading(run, answers, chooser, manifest, target, overwrites, retryable)


async def regrade(
    plan: Regrading, verifier: AnyVerifier, *, stop: StopRequest, prepared: Callable[[], None], progress: Progress | None = None
) -> CollectResult:
    """Grade what is planned, under the output's lock; ``prepared`` is called when the run exists.

    Raises what ``collect`` raises.
    """
    target = plan.target
    with ShardLock(target.lock, since=_now()) as lock:
        prepare_output(target, plan.answers.lines, plan.manifest, overwrites=plan.overwrites)
        prepared()
        copies = plan.chooser.mode is Mode.JUDGE_FAILED_ONLY
        return await collect(
            plan.settings,
            target,
            lock,
            job=JobFacts(),
            stop=stop,
            progress=progress,
            agent=SavedAgent(plan.answers, plan.chooser.reasons, plan.settings, copies_results=copies),
            verifier=_regrader(verifier, plan.settings, invalid_retryable=plan.invalid_retryable),
        )


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
        lock = stack.enter_context(ShardLock(artifacts.lock, since=_now()))
        _check_verifier(artifacts, verifier)
        chooser = Chooser(Mode.JUDGE_FAILED_ONLY, run.retry, wanted.limit)
        await _migrate(artifacts, lock, run)
        with RolloutStore.read(artifacts) as store:
            chosen = (one for one in chooser.choose(candidates_in(store)) if one.kind is Kind.UNJUDGED)
            answers = stack.enter_context(Answers.of(chosen))
        for line in chooser.warnings():
            warn(line)
        if not len(answers):
            return None
        return await collect(
            run,
            artifacts,
            lock,
            job=JobFacts(),
            stop=stop,
            progress=progress,
            agent=SavedAgent(answers, chooser.reasons, run, copies_results=False),
            verifier=_regrader(verifier, run, invalid_retryable=wanted.invalid_judge_retryable),
            only=lambda key: answers.find(key) is not None,
        )


def verifier_identity(verifier: AnyVerifier) -> dict[str, Any]:
    """What of a verifier belongs to the experiment."""
    return {**identity_of(verifier.settings), **verifier.identity()}


def _answers_of(source: Source, chooser: Chooser, *, retries_invalid: bool) -> Answers:
    with ExitStack() as stack:
        if source.manifests:
            stores = [stack.enter_context(RolloutStore.read(run)) for run in source.runs]
            found = (candidates_in(store, retries_invalid=retries_invalid) for store in stores)
        else:
            found = (candidates_at(run, source.inventory, retries_invalid=retries_invalid) for run in source.runs)
        return Answers.of(chooser.choose(chain.from_iterable(found)))


def _manifest(source: Source, wanted: ReverifySettings, answers: Answers, verifier: AnyVerifier, *, benchmark: str) -> Manifest:
    digest = answers.digest()
    made_from = {
        "mode": wanted.mode.value,
        "source_run_ids": sorted({manifest.run_id for manifest in source.manifests}),
        "source_digest": digest,
        "limit": wanted.limit,
        "source": source.config.get(REVERIFY),
    }
    old = source.manifests
    return new_manifest(
        answers.lines(),
        benchmark=old[0].benchmark if old else benchmark,
        source_digest=old[0].source_digest if old else digest,
        config={**source.config, "verifier": verifier_identity(verifier), REVERIFY: made_from},
        is_legacy=any(manifest.legacy_import for manifest in old) or not (old or source.is_verified),
        is_overridden=any(manifest.identity_overridden for manifest in old),
    )


def _regrader(verifier: AnyVerifier, run: RunSettings, *, invalid_retryable: bool) -> Regrader:
    retries = run.retry.retry_invalid_judge_responses
    return Regrader(verifier, retries_invalid=retries, invalid_retryable=invalid_retryable)


def _check_verifier(artifacts: RunArtifacts, verifier: AnyVerifier) -> None:
    manifest = read_manifest(artifacts.manifest)
    if manifest is None:
        cure = "Give another output, or take the files over first with gym eval run and allow_unsafe_resume."
        raise NotFoundError("there is no journal to append to.", cure, artifacts.rollouts)
    old, new = flatten(manifest.config.get("verifier", {})), flatten(verifier_identity(verifier))
    differing: Sequence[str] = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
    if differing:
        what = f"the run was graded by another verifier ({', '.join(differing)})."
        raise IdentityError(what, "Grade into an output of its own: one run has one verifier.", artifacts.manifest)


async def _migrate(artifacts: RunArtifacts, lock: ShardLock, run: RunSettings) -> None:
    """Make flagged results failures, as a resume with the same setting would; no session when there are none."""
    if not run.retry.retry_invalid_judge_responses:
        return
    with RolloutStore.read(artifacts) as store:
        if next(iter(invalid_results(artifacts, store.history, store.inventory, store.manifest)), None) is None:
            return
    session = ShardSession.open(artifacts, lock, JobFacts(), is_synced=run.durability == "fsync")
    session.migrate_invalid_judgements()
    await session.end("final")


def _nothing(mode: Mode) -> str:
    return "no answer can be graded again." if mode is Mode.ALL else "no judge failed on an answer that may be judged again."


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")

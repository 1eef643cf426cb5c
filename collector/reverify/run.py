"""A regrading from its source to its end: what is graded is chosen first, then an ordinary session does the rest.

Attempts are journalled before a verifier is asked, verdicts are durable before they count, and a resume does what is left:
all by the collector itself, which here reads answers instead of asking for them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Self

from collector import jsonl
from collector.artifacts import RunArtifacts
from collector.collect import CollectResult, Progress, collect
from collector.errors import DatasetError, LockHeldError, NoTasksError
from collector.formats.inventory import facts_of_lines
from collector.formats.manifest import Manifest, describe_run
from collector.formats.rollout_key import counted_id
from collector.reverify.answers import Answers, Kind
from collector.reverify.output import REVERIFY, check_output, prepare_output
from collector.reverify.regrade import Regrader, SavedAgent
from collector.reverify.selection import Chooser, Mode
from collector.reverify.settings import ReverifySettings
from collector.reverify.source import candidates_in
from collector.reverify.source_files import candidates_at
from collector.session import JobFacts
from collector.settings import RetrySettings, RunSettings, identity_of
from collector.shard.lock import ShardLock, is_held
from collector.shard.store import RolloutStore
from collector.stop import StopRequest
from collector.verifiers.base import Verifier, VerifierSettings

AnyVerifier = Verifier[VerifierSettings]
#: Told each warning as it is found.
Warn = Callable[[str], None]
#: Called with what raises FencedError when the output's lock is lost.
Prepared = Callable[[Callable[[], None]], None]


@dataclass(frozen=True, slots=True)
class Source:
    """The files that are graded: shards of one run, or files without a manifest."""

    runs: tuple[RunArtifacts, ...]
    manifests: tuple[Manifest, ...] = ()
    #: Instead of the inventory beside files without a manifest.
    inventory: Path | None = None
    #: Whether something vouches for files without a manifest, as a merge's receipt does.
    is_verified: bool = False
    #: Rollouts of a merged file's run that have no row in it; nothing here says which.
    unseen: int = 0

    @property
    def config(self) -> dict[str, Any]:
        """The experiment as the run's manifests have it; empty for files without one."""
        return self.manifests[0].config if self.manifests else {}


@dataclass(slots=True)
class Chosen:
    """The answers of a source that are graded, or taken over. Close it, or use it as a context manager."""

    answers: Answers
    chooser: Chooser

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.answers.__exit__(*exc)


@dataclass(frozen=True, slots=True)
class Regrading:
    """A regrading that is checked and not yet on disk."""

    settings: RunSettings
    chosen: Chosen
    manifest: Manifest
    target: RunArtifacts
    overwrites: bool
    invalid_retryable: bool


def choose(source: Source, wanted: ReverifySettings, retry: RetrySettings, verifier: AnyVerifier, *, warn: Warn) -> Chosen:
    """What of ``source`` is graded again. Reads it and writes nothing.

    Raises NoTasksError when that is nothing, DatasetError for a row that ``verifier`` cannot grade, LockHeldError while a
    collector fills the source.
    """
    for artifacts in source.runs:
        if is_held(artifacts.lock):
            raise LockHeldError("a collector fills the run at this moment.", "Wait for its end.", artifacts.rollouts)
    chooser = Chooser(wanted.mode, retry, wanted.limit)
    answers = _answers_of(source, chooser, retries_invalid=retry.retry_invalid_judge_responses)
    for line in chooser.warnings():
        warn(line)
    if not chooser.chosen:
        raise NoTasksError(_nothing(wanted.mode), "Nothing was changed.", source.runs[0].rollouts)
    with ExitStack() as stack:
        chosen = stack.enter_context(Chosen(answers, chooser))
        check_rows(chosen, verifier)
        stack.pop_all()
    return chosen


def plan_regrading(
    source: Source, chosen: Chosen, wanted: ReverifySettings, run: RunSettings, verifier: AnyVerifier
) -> Regrading:
    """The run that ``chosen`` is graded into. Writes nothing. Raises RefusedError for an output that is taken."""
    target = RunArtifacts(run.output_jsonl_fpath.absolute())
    manifest = _manifest(source, wanted, chosen.answers, verifier, benchmark=target.rollouts.stem)
    check_output(
        target,
        source.runs,
        inventory_digest=manifest.inventory_digest,
        resumes=wanted.resume,
        overwrites=wanted.overwrite,
    )
    return Regrading(run, chosen, manifest, target, wanted.overwrite, wanted.invalid_judge_retryable)


async def regrade(
    plan: Regrading, verifier: AnyVerifier, *, stop: StopRequest, prepared: Prepared, progress: Progress | None = None
) -> CollectResult:
    """Grade what is planned, under the output's lock; ``prepared`` is called when the run exists, with its fence.

    Raises what ``collect`` raises.
    """
    target, answers, chooser = plan.target, plan.chosen.answers, plan.chosen.chooser
    await check_starts(verifier)
    with ShardLock(target.lock, since=_now()) as lock:
        prepare_output(target, answers.lines, plan.manifest, overwrites=plan.overwrites, fence=lock.check)
        prepared(lock.check)
        copies = chooser.mode is Mode.JUDGE_FAILED_ONLY
        agent = SavedAgent(answers, chooser.reasons, plan.settings, stop, copies_results=copies)
        result = await collect(
            plan.settings,
            target,
            lock,
            job=JobFacts(),
            stop=stop,
            progress=progress,
            agent=agent,
            verifier=regrader(verifier, plan.settings, invalid_retryable=plan.invalid_retryable),
        )
    if agent.trouble is not None:
        raise agent.trouble
    return result


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
    lines = facts_of_lines(answers.lines())
    return describe_run(
        {**source.config, "verifier": verifier_identity(verifier), REVERIFY: made_from},
        benchmark=old[0].benchmark if old else benchmark,
        expected=lines.expected,
        source_digest=old[0].source_digest if old else digest,
        inventory_digest=lines.digest,
        is_legacy=any(manifest.legacy_import for manifest in old) or not (old or source.is_verified),
        is_overridden=any(manifest.identity_overridden for manifest in old),
    )


def regrader(verifier: AnyVerifier, run: RunSettings, *, invalid_retryable: bool) -> Regrader:
    retries = run.retry.retry_invalid_judge_responses
    return Regrader(verifier, retries_invalid=retries, invalid_retryable=invalid_retryable)


def check_rows(chosen: Chosen, verifier: AnyVerifier) -> None:
    """Raise DatasetError for the first row that ``verifier`` cannot grade."""
    answers = chosen.answers
    graded = {Kind.UNJUDGED} if chosen.chooser.mode is Mode.JUDGE_FAILED_ONLY else {Kind.UNJUDGED, Kind.RESULT}
    for position, line in enumerate(answers.lines()):
        if answers.kinds[position] in graded:
            try:
                verifier.check_row(jsonl.loads(line))
            except ValueError as error:
                where = f"rollout {counted_id(answers.keys[position])}"
                raise DatasetError(f"{error}.", "Choose another verifier.", where) from error


def _nothing(mode: Mode) -> str:
    return "no answer can be graded again." if mode is Mode.ALL else "no judge failed on an answer that may be judged again."


async def check_starts(verifier: AnyVerifier) -> None:
    """Raise what keeps ``verifier`` from starting, a key that is not set for example, before anything is written."""
    async with verifier:
        pass


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")

"""``gym eval reverify`` without its printing: which files are graded, by whom, and under which budget."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml

from collector import durable, jsonl
from collector.artifacts import RunArtifacts
from collector.collect import CollectResult, Progress
from collector.errors import ConfigError, NoTasksError, RefusedError
from collector.preparation.prepare import make_verifier
from collector.reverify.append import judge_again
from collector.reverify.gym_server import STATELESS, GymServerVerifier
from collector.reverify.run import AnyVerifier, Source, Warn, choose, plan_regrading, regrade
from collector.reverify.settings import ReverifySettings, run_settings
from collector.settings import RetrySettings, RunSettings
from collector.shard.store import RolloutStore
from collector.state.coverage import Coverage, total
from collector.stop import StopReason
from collector.text.counted import agreeing, counted
from exporters.tail import finish_benchmark
from merge.inputs.identity import bind_inputs
from merge.inputs.sources import are_legacy, find_runs, read_source
from merge.publication.receipt import Receipt, read_receipt
from orchestrate.asked_to_stop import stop_on_signals
from orchestrate.config.references import UNKNOWN_PORT_URL
from orchestrate.health import choose_health
from orchestrate.jobs.tail import lines_of
from orchestrate.masked_config import publish_config
from orchestrate.named import named
from orchestrate.runs.directory import read_plan

_RESUME: Final = "--resume goes on from here."
#: Verifiers that grade nothing by themselves: the verdict came with the answer.
_WITH_THE_ANSWER: Final = frozenset({"environment"})


def find_source(wanted: ReverifySettings) -> Source:
    """The files that ``wanted`` names. Of a merged file whose shards are there, the shards: they hold more than it does.

    Raises NotFoundError, RefusedError or IdentityError.
    """
    runs = find_runs([_place_of(wanted.rollouts_jsonl_fpath)])
    receipt = read_receipt(runs[0].receipt) if len(runs) == 1 and are_legacy(runs) else None
    if receipt is not None:
        shards = [RunArtifacts(runs[0].rollouts.parent / record.path) for record in receipt.inputs]
        if wanted.materialized_inputs_jsonl_fpath is None and all(shard.manifest.is_file() for shard in shards):
            runs = shards
    if are_legacy(runs):
        is_verified, unseen = (False, 0) if receipt is None else _told_by(runs[0], receipt)
        return Source(tuple(runs), inventory=wanted.materialized_inputs_jsonl_fpath, is_verified=is_verified, unseen=unseen)
    if wanted.materialized_inputs_jsonl_fpath is not None:
        what = "materialized_inputs_jsonl_fpath: is for files without a manifest; this run has its own inventory."
        raise ConfigError(what, "Leave --inputs out.")
    inputs = bind_inputs([read_source(run) for run in runs], allow_partial=wanted.allow_partial)
    return Source(tuple(inputs.artifacts), tuple(manifest for _, manifest in inputs.shards))


def settings_for(wanted: ReverifySettings, source: Source, output: Path) -> RunSettings:
    """The settings of a session into ``output``: who grades and how often, from the run's own where nothing else is asked."""
    saved = _saved_settings(source.runs[0])
    verifier = _verifier_of(wanted, saved, source)
    return run_settings(wanted, output, verifier, wanted.retry_over(saved.get("retry") or {}))


async def regrade_here(
    wanted: ReverifySettings, source: Source, *, warn: Warn, progress: Progress
) -> tuple[CollectResult, RunSettings]:
    """Grade into a run of its own until all is done or somebody asks to stop."""
    output = wanted.output_jsonl_fpath
    if output is None:
        raise AssertionError("settings without an output append")
    run = settings_for(wanted, source, output.absolute())
    verifier = make_verifier(run)
    with choose(source, wanted, run.retry, verifier, warn=warn) as chosen:
        if source.unseen:
            told = f"{counted(source.unseen, 'rollout')} of the merged run {agreeing(source.unseen, 'have')} no row"
            warn(f"{told} and {agreeing(source.unseen, 'are')} not counted: name its directory to keep them")
        if await _is_unsafe(wanted, verifier, warn):
            run = settings_for(wanted, source, output.absolute().with_name(f"unsafe_{output.name}"))
        plan = plan_regrading(source, chosen, wanted, run, verifier)

        def prepared(fence: Callable[[], None]) -> None:
            publish_config(plan.target, run, fence=fence)

        result = await regrade(plan, verifier, stop=stop_on_signals("gradings", _RESUME), prepared=prepared, progress=progress)
    return result, run


async def _is_unsafe(wanted: ReverifySettings, verifier: AnyVerifier, warn: Warn) -> bool:
    """Whether the grading goes on though a server may keep state. Raises RefusedError when that is not asked for."""
    if not isinstance(verifier, GymServerVerifier):
        return False
    if verifier.is_guessed:
        warn("rows that name no resources server are graded by the only one there is")
    if wanted.judge_failed_only:
        return False
    unsafe = {name: mode for name, mode in (await verifier.modes()).items() if mode != STATELESS}
    if not unsafe:
        return False
    named = ", ".join(f"{name}: {mode}" for name, mode in unsafe.items())
    if not wanted.force:
        cure = "Its verdict on a saved answer may not be the one on a fresh answer; --force grades into unsafe_<output>."
        raise RefusedError(f"a resources server does not say that it keeps no state ({named}).", cure)
    warn(f"a resources server may keep state between gradings ({named}): verdicts may be wrong")
    return True


async def append_here(
    wanted: ReverifySettings, source: Source, *, warn: Warn, begun: Callable[[], Progress]
) -> tuple[Coverage, StopReason | None]:
    """Judge again in each shard of the source, one after the other; the coverage of all, and why it ended early if it did.

    Raises NoTasksError when no shard had anything to judge and nobody asked to stop before all were looked at.
    """
    output = wanted.output_jsonl_fpath
    if output is not None and [durable.real_path(output)] != [durable.real_path(run.rollouts) for run in source.runs]:
        what = f"output_jsonl_fpath: append records into the run that is graded, and this is another file: {output}."
        raise ConfigError(what, "Leave --output out, or --append.")
    stop = stop_on_signals("gradings", _RESUME)
    settings = settings_for(wanted, source, source.runs[0].rollouts)
    coverages: list[Coverage] = []
    has_begun = False
    for artifacts in source.runs:
        if stop.is_asked:
            coverages.append(await asyncio.to_thread(_coverage_of, artifacts, settings.retry))
            continue
        run = settings.model_copy(update={"output_jsonl_fpath": artifacts.rollouts})
        judged = await judge_again(artifacts, wanted, run, make_verifier(run), stop=stop, warn=warn, progress=begun())
        coverages.append(judged.coverage)
        has_begun |= judged.has_begun
    if not has_begun and stop.reason is None:
        what = "no judge failed on an answer that may be judged again."
        raise NoTasksError(what, "No judge was asked.", wanted.rollouts_jsonl_fpath)
    return total(coverages), stop.reason


def renew_merged(wanted: ReverifySettings, source: Source) -> str:
    """Publish the merged result of the benchmark whose shards were judged again; what was done, or what is left to do.

    Exports are not repeated: what they sent is of the result before.
    """
    first = source.runs[0]
    place = named(str(first.rollouts))
    if place.run is None or place.benchmark is None:
        return "the merged result, if there is one, is older now: gym eval aggregate renews it"
    benchmark = read_plan(place.run).benchmark(place.benchmark)
    run = settings_for(wanted, source, first.rollouts)
    done = finish_benchmark(
        place.run.merged(benchmark),
        place.run.shards(benchmark),
        benchmark=benchmark.name,
        retry=run.retry,
        exports={},
        health=choose_health(run),
    )
    lines = lines_of(done, place.run, benchmark)
    if benchmark.export:
        lines.append(f"exports that were made are of the result before: gym eval export {place.run.root.name}")
    return "; ".join(lines)


def _coverage_of(artifacts: RunArtifacts, retry: RetrySettings) -> Coverage:
    with RolloutStore.read(artifacts) as store:
        return store.coverage(retry)


def _place_of(path: Path) -> Path:
    """Where the run lies: ``path`` itself, or what it names in the words that every command takes for a run."""
    return path if path.exists() or path.suffix == ".jsonl" else named(str(path)).path


def _told_by(merged: RunArtifacts, receipt: Receipt) -> tuple[bool, int]:
    """Of a merged file alone: whether it is what was published of a verified run, and how many rollouts are not in it."""
    try:
        coverage = jsonl.loads(merged.coverage.read_bytes())
        with merged.rollouts.open("rb") as file:
            is_published = hashlib.file_digest(file, "sha256").hexdigest() == receipt.output.sha256
    except (OSError, ValueError):
        return False, 0
    told: dict[str, Any] = coverage if isinstance(coverage, dict) else {}
    expected = told.get("expected")
    unseen = max(0, expected - receipt.output.rows) if isinstance(expected, int) else 0
    return is_published and told.get("identity_verified") is True, unseen


def _verifier_of(wanted: ReverifySettings, saved: dict[str, Any], source: Source) -> dict[str, Any]:
    known: dict[str, Any] = saved.get("verifier") or {}
    given = wanted.verifier or {}
    if known.get("type") in _WITH_THE_ANSWER:
        # The servers that graded the answers grade them again.
        known = {"type": "gym_server", "head_server": (saved.get("agent") or {}).get("head_server") or {}}
    if wanted.head_server is not None:
        given = {"type": "gym_server", "head_server": wanted.head_server.model_dump(), **given}
    if given.get("type") not in {None, known.get("type")}:
        return given
    merged = {**known, **given}
    where = source.runs[0].rollouts
    if not isinstance(merged.get("type"), str):
        raise ConfigError("verifier: nothing says who grades.", "Name one with --verifier or in --config.", where)
    if merged.get("base_url") == UNKNOWN_PORT_URL:
        what = "verifier.base_url: where the judge answered was known to the run's jobs only."
        raise ConfigError(what, "Serve it and give its address: +verifier.base_url=http://host:8000/v1.", where)
    return merged


def _saved_settings(artifacts: RunArtifacts) -> dict[str, Any]:
    """What the file of settings beside a run says; secrets are masked in it, and none of these keys is one."""
    try:
        value = yaml.safe_load(artifacts.config.read_text())
    except FileNotFoundError:
        return {}
    except PermissionError as error:
        raise RefusedError("it cannot be read: permission denied.", "Ask its owner for access.", artifacts.config) from error
    except (OSError, yaml.YAMLError) as error:
        problem = " ".join(str(error).split())
        raise ConfigError(f"the run's settings cannot be read: {problem}.", "Name the verifier.", artifacts.config) from error
    return value if isinstance(value, dict) else {}

"""``gym eval run`` without its printing: one benchmark, here and now, as a single shard beside its own result files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from collector.artifacts import RunArtifacts
from collector.collect import CollectResult, Progress, collect
from collector.errors import ConfigError, RefusedError
from collector.formats.manifest import Manifest, check_identity, read_manifest
from collector.preparation.inventory_repair import restore_inventory
from collector.preparation.materialize import Materialized, materialize
from collector.preparation.prepare import check_free, new_manifest, prepare_shard, validate_rows
from collector.session import JobFacts
from collector.settings import RunSettings
from collector.shard.lock import ShardLock
from orchestrate.asked_to_stop import stop_on_signals
from orchestrate.masked_config import publish_config
from orchestrate.output_place import check_place, check_written
from orchestrate.submission.checks import run_problems


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run that is checked and not yet on disk."""

    settings: RunSettings
    artifacts: RunArtifacts
    inventory: Materialized
    manifest: Manifest


def prepare(settings: RunSettings, *, read: Sequence[Path] = ()) -> PreparedRun:
    """Check settings, plug-ins and every row. Raises GymEvalError with all problems of a kind; writes nothing.

    ``read`` are files that the settings came from: as little as the dataset may they be written over.
    """
    problems = list(run_problems(settings))
    if problems:
        raise ConfigError("; ".join(problems) + ".")
    if settings.agent["type"] == "command":
        raise ConfigError("agent: a command is run by gym eval submit: write driver.benchmarks.NAME.command.")
    inventory = materialize(settings)
    targets = validate_rows(settings, inventory)
    output = settings.output_jsonl_fpath
    if output.suffix != ".jsonl" or output.is_dir():
        raise ConfigError(f"output_jsonl_fpath: {output} is not the name of a .jsonl file.")
    if output.exists() and output.samefile(settings.input_jsonl_fpath):
        raise ConfigError(f"output_jsonl_fpath: {output} is the dataset itself.")
    check_place(output)
    artifacts = RunArtifacts(output.absolute())
    if not settings.resume_from_cache and artifacts.manifest.exists():
        what = "there is a run at this path and resume_from_cache is off."
        raise RefusedError(what, "Use another output path, or move all files of that run away together.", output)
    prompt = [settings.prompt_config] if isinstance(settings.prompt_config, Path) else []
    check_written(artifacts, [settings.input_jsonl_fpath, *prompt, *read])
    manifest = new_manifest(settings, inventory, benchmark=output.stem, targets=targets)
    saved = read_manifest(artifacts.manifest)
    # Asked again under the lock; asked here, a refusal does not even touch the lock's note.
    if saved is None and not settings.allow_unsafe_resume:
        check_free(artifacts, inventory)
    elif saved is not None and not settings.allow_unsafe_resume:
        check_identity(saved, manifest, artifacts.manifest)
    return PreparedRun(settings, artifacts, inventory, manifest)


async def collect_here(run: PreparedRun, progress: Progress) -> CollectResult:
    """Fill the run until it is final or Ctrl-C or SIGTERM asks to stop. Raises what ``prepare_shard`` and ``collect`` raise."""
    stop = stop_on_signals("requests", "The same command goes on from here.")
    lock = ShardLock(run.artifacts.lock, since=datetime.now(UTC).isoformat(timespec="seconds"))
    with lock:
        prepare_shard(
            run.artifacts,
            run.inventory,
            run.manifest,
            is_unsafe=run.settings.allow_unsafe_resume,
            fence=lock.check,
        )
        restore_inventory(run.artifacts, run.settings, lock.check)
        publish_config(run.artifacts, run.settings, fence=lock.check)
        return await collect(run.settings, run.artifacts, lock, job=JobFacts(), stop=stop, progress=progress)

"""From settings to a prepared run on disk: everything is checked first, the manifest is written last.

Order: inventory, then empty main file, failures and journal, then the manifest. A crash before the manifest leaves no run;
the same preparation repeated finishes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from collector import durable, jsonl
from collector.agents.base import AGENTS, Agent, AgentSettings
from collector.artifacts import RunArtifacts
from collector.errors import DatasetError, FencedError, IdentityError, RefusedError
from collector.formats import rows
from collector.formats.inventory import begins, digest_of_lines, line_blocks
from collector.formats.manifest import Manifest, check_identity, describe_run, read_manifest
from collector.preparation.legacy import import_legacy
from collector.preparation.materialize import Materialized
from collector.prompt import load_prompt
from collector.settings import RunSettings, identity_of, validate_settings
from collector.verifiers.base import VERIFIERS, Verifier, VerifierSettings


def make_agent(settings: RunSettings) -> Agent[AgentSettings]:
    """The agent that ``settings`` name, not yet entered. Raises ConfigError for an unknown one or its bad settings."""
    cls = AGENTS.load(settings.agent["type"])
    return cls(validate_settings(cls.Settings, settings.agent, "agent"), settings)


def make_verifier(settings: RunSettings) -> Verifier[VerifierSettings]:
    """The verifier that ``settings`` name, not yet entered. Raises ConfigError for an unknown one or its bad settings."""
    cls = VERIFIERS.load(settings.verifier["type"])
    return cls(validate_settings(cls.Settings, settings.verifier, "verifier"))


def experiment_of(settings: RunSettings, targets: Collection[str] = ()) -> dict[str, Any]:
    """What makes saved work reusable: the settings that decide what is measured, plug-in settings included.

    ``targets`` are the servers that the rows go to, where an agent has several; ``validate_rows`` finds them.
    """
    agent, verifier = make_agent(settings), make_verifier(settings)
    prompt = load_prompt(settings.prompt_config)
    return {
        **identity_of(settings),
        "input_jsonl_fpath": settings.input_jsonl_fpath.name,
        "prompt_config": None if prompt is None else prompt.model_dump(),
        "agent": {**identity_of(agent.settings), **agent.identity(targets)},
        "verifier": {**identity_of(verifier.settings), **verifier.identity()},
    }


def validate_rows(settings: RunSettings, lines: Iterable[bytes]) -> frozenset[str]:
    """The servers that the rows go to. Raises DatasetError for the first that cannot be sent, or that cannot be graded."""
    targets: set[str] = set()
    agent, verifier = make_agent(settings), make_verifier(settings)
    for line in lines:
        row = jsonl.loads(line)
        try:
            agent.check_row(row)
            verifier.check_row(row)
            target = agent.target_of(row)
        except ValueError as error:
            where = f"{settings.input_jsonl_fpath}: task {row[rows.TASK_INDEX]}"
            raise DatasetError(f"{error}.", "Change the dataset, the agent or the verifier.", where) from error
        if target is not None:
            targets.add(target)
    return frozenset(targets)


def new_manifest(
    settings: RunSettings,
    inventory: Materialized,
    *,
    benchmark: str,
    targets: Collection[str] = (),
    run_id: str | None = None,
) -> Manifest:
    """The manifest of a run over ``inventory``, whose rows go to ``targets``; ``run_id`` is new unless given."""
    return describe_run(
        experiment_of(settings, targets),
        benchmark=benchmark,
        expected=len(inventory),
        source_digest=inventory.source_digest,
        inventory_digest=inventory.digest,
        run_id=run_id,
    )


def prepare_shard(
    artifacts: RunArtifacts,
    lines: Iterable[bytes],
    manifest: Manifest,
    *,
    is_unsafe: bool = False,
    fence: Callable[[], None] | None = None,
) -> Manifest:
    """Make the run exist, or find it prepared already, and return its manifest.

    Raises IdentityError when the path holds another experiment, RefusedError when it holds files without a manifest. Nothing
    is written in either case. ``is_unsafe`` accepts both, and the manifest says so from then on; it never accepts a broken
    history. The caller is alone on the path: it holds the shard's lock, whose loss ``fence`` tells by a FencedError, or
    nobody knows the path yet.
    """
    saved = read_manifest(artifacts.manifest)
    for path in (*artifacts.recovery_companions, artifacts.rollouts, artifacts.coverage, artifacts.config):
        durable.sweep(path, fence=fence)
    if saved is not None:
        return _reuse(artifacts, saved, manifest, is_unsafe=is_unsafe, fence=fence)
    if is_unsafe and _strays(artifacts, lines):
        return import_legacy(artifacts, manifest, fence)
    if not is_unsafe:
        check_free(artifacts, lines)
    durable.make_dir(artifacts.rollouts.parent)
    try:
        # Nothing is replaced: one that was stopped here and outrun finds what the other made, or its temporary file swept away.
        _write_inventory(artifacts.inventory, lines, manifest, fence)
        for path in (artifacts.rollouts, artifacts.failures, artifacts.journal):
            durable.create_missing(path)
        durable.publish_new(artifacts.manifest, [manifest.encode()], fence=fence)
    except (FileExistsError, FileNotFoundError) as error:
        what = "another collector prepared the run at the same time."
        raise FencedError(what, "This one stops; start it again.", artifacts.rollouts) from error
    return manifest


def check_free(artifacts: RunArtifacts, lines: Iterable[bytes]) -> None:
    """Raise RefusedError where files without a manifest lie that hold anything but the beginning of this preparation.

    Reads only. Without the path's lock it is a look ahead: somebody may prepare the run meanwhile, which is no refusal.
    """
    strays = _strays(artifacts, lines)
    # Settings of a run that was removed may be somebody's own file of that name; a receipt tells of rows that are gone.
    strays += [path for path in (artifacts.config, artifacts.receipt) if path.exists() or path.is_symlink()]
    if strays and read_manifest(artifacts.manifest) is None:
        raise RefusedError(
            f"there are files of a run without a manifest: {', '.join(path.name for path in strays)}.",
            "Use another output path, move all files of that run away together, or accept them with allow_unsafe_resume.",
            artifacts.rollouts,
        )


def write_new_shard(
    artifacts: RunArtifacts, lines: Iterable[bytes], describe: Callable[[int, str], Manifest], config: bytes | None = None
) -> None:
    """What ``prepare_shard`` makes, and the masked settings when given, in a staged directory: durable with it.

    ``describe`` makes the manifest from the number of the lines and their digest.
    """
    artifacts.rollouts.parent.mkdir(parents=True)
    hasher, expected = hashlib.sha256(), 0

    def counted() -> Iterator[bytes]:
        nonlocal expected
        for line in lines:
            hasher.update(line)
            expected += 1
            yield line

    durable.write_new_lines(artifacts.inventory, counted())
    for path in (artifacts.rollouts, artifacts.failures, artifacts.journal):
        durable.write_new(path, b"")
    if config is not None:
        durable.write_new(artifacts.config, config)
    durable.write_new(artifacts.manifest, describe(expected, hasher.hexdigest()).encode())


def _write_inventory(path: Path, lines: Iterable[bytes], manifest: Manifest, fence: Callable[[], None] | None) -> None:
    """An inventory that lies there is the beginning of ours: the whole of it stays, a part is replaced."""
    if not path.exists():
        durable.publish_new(path, lines, fence=fence)
    elif digest_of_lines(line_blocks(path)) != manifest.inventory_digest:
        with durable.staged(path, fence=fence) as file:
            file.write_lines(lines)


def _reuse(
    artifacts: RunArtifacts, saved: Manifest, wanted: Manifest, *, is_unsafe: bool, fence: Callable[[], None] | None
) -> Manifest:
    try:
        check_identity(saved, wanted, artifacts.manifest)
    except IdentityError:
        if not is_unsafe:
            raise
        saved = saved.model_copy(update={"identity_overridden": True})
        durable.publish(artifacts.manifest, saved.encode(), fence=fence)
    return saved


def _strays(artifacts: RunArtifacts, lines: Iterable[bytes]) -> list[Path]:
    """Files without a manifest that hold somebody's results; our own unfinished preparation holds none."""
    present = [path for path in (artifacts.rollouts, *artifacts.recovery_companions) if path.exists() or path.is_symlink()]
    return [path for path in present if not _is_unfinished_preparation(artifacts, path, lines)]


def _is_unfinished_preparation(artifacts: RunArtifacts, path: Path, lines: Iterable[bytes]) -> bool:
    # A preparation makes files of its own; what a link leads to is somebody's, however empty.
    if path.is_symlink() or not path.is_file():
        return False
    info = path.stat()
    return begins(path, lines) if path == artifacts.inventory and info.st_size else info.st_size == 0 and info.st_nlink == 1

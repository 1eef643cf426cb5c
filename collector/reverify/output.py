"""Where a regrading is written: every refusal first, then the prepared run, whose manifest names what it was made from.

Order when an output is replaced: its manifest goes first, so that what a crash leaves is no run; then all that lay beside it;
then the new run is prepared as any other is.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from collector import durable, jsonl
from collector.artifacts import RunArtifacts
from collector.errors import ConfigError, RefusedError
from collector.manifest import Manifest, check_identity, digest_of, read_manifest

#: Key of a manifest's configuration that says what the run was made from.
REVERIFY: Final = "reverify"
#: Files named when an output is taken; more would hide what to do.
_SHOWN: Final = 3
#: Beside a run's own files: what health checks and merges leave.
_REPORTS: Final = ("_health.json", "_verdicts.jsonl", "_config.yaml")


def check_output(
    target: RunArtifacts, sources: Iterable[RunArtifacts], *, inventory_digest: str, resumes: bool, overwrites: bool
) -> None:
    """Raise RefusedError unless the run over the inventory of this digest can be at ``target`` without loss. Reads only."""
    path = target.rollouts
    if path.suffix != ".jsonl" or path.is_dir():
        raise ConfigError(f"output_jsonl_fpath: {path} is not the name of a .jsonl file.")
    mine = {file.resolve() for file in files_of(target)}
    for source in sources:
        taken = sorted(file.name for file in files_of(source) if file.resolve() in mine)
        if taken:
            cure = "Name another output; to judge failed judgements again in the run itself, use --judge-failed-only --append."
            raise RefusedError(f"the output would replace files of the run that is graded: {', '.join(taken)}.", cure, path)
    present = [file.name for file in files_of(target) if file.exists() or file.is_symlink()]
    saved = read_manifest(target.manifest)
    _refuse_collected(saved, target)
    if not present or overwrites or _is_unfinished(target, inventory_digest):
        return
    if resumes and saved is None:
        what = "there are files and no manifest: nothing that could be gone on with."
        raise RefusedError(what, "Use --overwrite to replace them, or another output.", path)
    if not resumes:
        cure = "Use --resume to go on with it, --overwrite to replace it, or another output."
        shown = ", ".join(present[:_SHOWN]) + (", ..." if len(present) > _SHOWN else "")
        raise RefusedError(f"the output is there already ({shown}).", cure, path)


def new_manifest(
    lines: Iterable[bytes], *, benchmark: str, source_digest: str, config: dict[str, Any], is_legacy: bool, is_overridden: bool
) -> Manifest:
    """The manifest of a run over ``lines``, which are read once and not kept."""
    hasher, expected = hashlib.sha256(), 0
    for line in lines:
        hasher.update(line)
        expected += 1
    plain = jsonl.loads(jsonl.canonical(config))
    return Manifest(
        run_id=uuid.uuid4().hex,
        benchmark=benchmark,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        expected=expected,
        source_digest=source_digest,
        inventory_digest=hasher.hexdigest(),
        config_digest=digest_of(plain),
        config=plain,
        legacy_import=is_legacy,
        identity_overridden=is_overridden,
    )


def prepare_output(
    target: RunArtifacts, lines: Callable[[], Iterator[bytes]], manifest: Manifest, *, overwrites: bool
) -> Manifest:
    """Make the run exist, or find it and check that it is this one; its manifest. The caller holds its lock.

    Raises IdentityError when it was made from other answers or with another verifier, and RefusedError when somebody put
    something else there since ``check_output`` looked.
    """
    for path in files_of(target):
        durable.sweep(path)
    saved = read_manifest(target.manifest)
    _refuse_collected(saved, target)
    if saved is not None and not overwrites:
        check_identity(saved, manifest, target.manifest)
        if _is_cut(target.inventory, lines()):
            durable.publish_lines(target.inventory, lines())
        return saved
    if not overwrites and not _is_unfinished(target, manifest.inventory_digest):
        raise RefusedError("files of another run appeared at the output.", "Name another output.", target.rollouts)
    durable.make_dir(target.rollouts.parent)
    for path in files_of(target):
        if path.exists() or path.is_symlink():
            durable.remove(path)
    durable.publish_lines(target.inventory, lines())
    for path in (target.rollouts, target.failures, target.journal):
        durable.publish(path, b"")
    durable.publish(target.manifest, manifest.encode())
    return manifest


def _refuse_collected(saved: Manifest | None, target: RunArtifacts) -> None:
    if saved is not None and REVERIFY not in saved.config:
        cure = "Its answers are never replaced: name another."
        raise RefusedError("the output is a run that was collected.", cure, target.rollouts)


def _is_cut(path: Path, lines: Iterator[bytes]) -> bool:
    """Whether the file holds the beginning of ``lines`` and not all of them: what a crashed file system leaves."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        for line in lines:
            found = file.read(len(line))
            if found != line:
                return line.startswith(found) and not file.read(1)
    return False


def files_of(run: RunArtifacts) -> tuple[Path, ...]:
    """Every file of a run that is no lock, the manifest first."""
    return (
        run.manifest,
        run.journal,
        run.inventory,
        run.failures,
        run.rollouts,
        run.moved,
        run.coverage,
        run.aggregate,
        run.receipt,
        run.exports,
        *(run.companion(tag) for tag in _REPORTS),
    )


def _is_unfinished(target: RunArtifacts, inventory_digest: str) -> bool:
    """Whether what is there is an interrupted preparation of this very run: its inventory at most, and nothing recorded."""
    recorded = (file for file in files_of(target) if file != target.inventory)
    if any(file.is_symlink() or (file.exists() and (not file.is_file() or file.stat().st_size)) for file in recorded):
        return False
    inventory = target.inventory
    if not inventory.exists() or not inventory.stat().st_size:
        return not inventory.is_symlink()
    with inventory.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == inventory_digest

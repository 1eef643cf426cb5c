"""Where a regrading is written: every refusal first, then the prepared run, whose manifest names what it was made from.

Order when an output is replaced: its manifest goes first, so that what a crash leaves is no run; then all that lay beside it;
then the new run is prepared as any other is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, cast

from collector import durable, jsonl
from collector.artifacts import RunArtifacts
from collector.errors import ConfigError, RefusedError
from collector.formats.manifest import Manifest, check_identity, read_manifest
from collector.reverify.regrade import ORIGIN

#: Key of a manifest's configuration that says what the run was made from.
REVERIFY: Final = "reverify"
#: Files named when an output is taken; more would hide what to do.
_SHOWN: Final = 3
#: What is looked at of rows without a manifest: the first ones, until so many or so many bytes.
_LINES: Final = 100
_BYTES: Final = 8 << 20


def check_output(
    target: RunArtifacts, sources: Iterable[RunArtifacts], *, inventory_digest: str, resumes: bool, overwrites: bool
) -> None:
    """Raise RefusedError unless the run over the inventory of this digest can be at ``target`` without loss. Reads only."""
    path = target.rollouts
    if path.suffix != ".jsonl" or path.is_dir():
        raise ConfigError(f"output_jsonl_fpath: {path} is not the name of a .jsonl file.")
    mine = {durable.real_path(file) for file in files_of(target)}
    for source in sources:
        taken = sorted(file.name for file in files_of(source) if durable.real_path(file) in mine)
        if taken:
            cure = "Name another output; to judge failed judgements again in the run itself, use --judge-failed-only --append."
            raise RefusedError(f"the output would replace files of the run that is graded: {', '.join(taken)}.", cure, path)
    present = [file.name for file in files_of(target) if file.exists() or file.is_symlink()]
    if directories := [file for file in files_of(target) if file.is_dir()]:
        raise RefusedError("a directory has the name of a file of the new run.", "Name another output.", directories[0])
    saved = read_manifest(target.manifest)
    _refuse_kept(saved, target)
    if not present or _is_unfinished(target, inventory_digest):
        return
    if overwrites:
        _refuse_foreign(saved, target)
        return
    if resumes and saved is None:
        what = "there are files and no manifest: nothing that could be gone on with."
        raise RefusedError(what, "Use --overwrite to replace them, or another output.", path)
    if not resumes:
        cure = "Use --resume to go on with it, --overwrite to replace it, or another output."
        shown = ", ".join(present[:_SHOWN]) + (", ..." if len(present) > _SHOWN else "")
        raise RefusedError(f"the output is there already ({shown}).", cure, path)


def prepare_output(
    target: RunArtifacts,
    lines: Callable[[], Iterator[bytes]],
    manifest: Manifest,
    *,
    overwrites: bool,
    fence: Callable[[], None],
) -> Manifest:
    """Make the run exist, or find it and check that it is this one; its manifest.

    The caller holds its lock; ``fence`` tells its loss by a FencedError, and then nothing more is changed. Raises
    IdentityError when it was made from other answers or with another verifier, and RefusedError when somebody put something
    else there since ``check_output`` looked.
    """
    saved = read_manifest(target.manifest)
    _refuse_kept(saved, target)
    if overwrites and not _is_unfinished(target, manifest.inventory_digest):
        # Before what a crash left is swept away: it tells whose the rest is.
        _refuse_foreign(saved, target)
    # Metrics and reports are published under locks of their own.
    for path in (*target.recovery_companions, target.rollouts, target.coverage, target.config):
        durable.sweep(path, fence=fence)
    if saved is not None and not overwrites:
        check_identity(saved, manifest, target.manifest)
        if _is_cut(target.inventory, lines()):
            _publish(target.inventory, lines(), fence)
        return saved
    if not overwrites and not _is_unfinished(target, manifest.inventory_digest):
        raise RefusedError("files of another run appeared at the output.", "Name another output.", target.rollouts)
    durable.make_dir(target.rollouts.parent)
    durable.discard(files_of(target), fence=fence)
    _publish(target.inventory, lines(), fence)
    for path in (target.rollouts, target.failures, target.journal):
        durable.publish(path, b"", fence=fence)
    durable.publish(target.manifest, manifest.encode(), fence=fence)
    return manifest


def _publish(path: Path, lines: Iterable[bytes], fence: Callable[[], None]) -> None:
    with durable.staged(path, fence=fence) as file:
        file.write_lines(lines)


def _refuse_kept(saved: Manifest | None, target: RunArtifacts) -> None:
    """What no flag replaces: answers that were collected, and a result that was merged of them."""
    if target.receipt.exists() or target.receipt.is_symlink():
        what = f"the output is a merged result ({target.receipt.name} beside it)."
        raise RefusedError(what, "It is never replaced: name another output.", target.rollouts)
    if saved is not None and REVERIFY not in saved.config:
        cure = "Its answers are never replaced: name another."
        raise RefusedError("the output is a run that was collected.", cure, target.rollouts)


def _refuse_foreign(saved: Manifest | None, target: RunArtifacts) -> None:
    """What --overwrite does not replace: files without a manifest that no earlier regrading made, as far as they tell."""
    if saved is not None or _was_replaced_here(target) or _holds_regraded_rows(target.rollouts):
        return
    # Reports are made of rows, and again.
    reports = {target.coverage, target.aggregate, target.health, target.verdicts}
    foreign = [file.name for file in files_of(target) if file not in reports and _holds_something(file)]
    if foreign:
        cure = "Move them away together, or name another output."
        raise RefusedError(f"no earlier regrading made what is there: {', '.join(foreign)}.", cure, target.rollouts)


def _was_replaced_here(target: RunArtifacts) -> bool:
    """Whether a crash left the manifest of a regrading that was about to be replaced."""
    parent = target.manifest.parent
    left = (
        (entry for entry in parent.iterdir() if durable.asked_for(entry.name) == target.manifest.name)
        if parent.is_dir()
        else ()
    )
    saved = (read_manifest(entry / target.manifest.name) for entry in left if entry.is_dir())
    return any(manifest is not None and REVERIFY in manifest.config for manifest in saved)


def _holds_regraded_rows(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        lines = file.read(_BYTES).split(b"\n", _LINES)[:_LINES]
    return any(ORIGIN in row for row in map(_row_in, lines))


def _row_in(line: bytes) -> dict[str, Any]:
    try:
        row = jsonl.loads(line)
    except ValueError:
        return {}
    return cast("dict[str, Any]", row) if isinstance(row, dict) else {}


def _holds_something(file: Path) -> bool:
    return file.is_symlink() or (file.exists() and (not file.is_file() or file.stat().st_size > 0))


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
        run.health,
        run.verdicts,
        run.config,
    )


def _is_unfinished(target: RunArtifacts, inventory_digest: str) -> bool:
    """Whether what is there is an interrupted preparation of this very run: its inventory at most, and nothing recorded."""
    if any(_holds_something(file) for file in files_of(target) if file != target.inventory):
        return False
    inventory = target.inventory
    if not inventory.exists() or not inventory.stat().st_size:
        return not inventory.is_symlink()
    with inventory.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == inventory_digest

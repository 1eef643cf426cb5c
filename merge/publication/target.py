"""Where a projection may be written: every refusal, made before anything is created or changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, cast

from collector import durable, jsonl
from collector.artifacts import RunArtifacts
from collector.errors import GymEvalError, RefusedError
from collector.formats import rows
from collector.formats.manifest import Manifest, read_manifest
from merge.inputs.source_files import SourceFiles
from merge.inputs.sources import is_companion
from merge.legacy.inputs import RUN
from merge.publication.receipt import name_of_input
from merge.publication.replaceable import check_replaceable
from merge.publication.told import told_beside

_ELSEWHERE: Final = "Use another output path; nothing was changed."
#: Fields that a row has once it was asked; a row without any of them, but with text to ask, is of a dataset.
_ANSWERED: Final = (rows.TASK_INDEX, "response", "reward")
#: What is looked at of a target: its first lines, until so many of them or so many bytes. A dataset whose first row is odd, a
#: heading or somebody's note, shows what it is in the next ones; a result may be of gigabytes.
_LINES: Final = 100
_BYTES: Final = 8 << 20


def check_targets(targets: Sequence[Path], sources: Sequence[RunArtifacts]) -> None:
    """Raise RefusedError unless writing ``targets`` leaves every input, and every other run, as it is. Reads only."""
    known = SourceFiles(sources)
    shards = {source.rollouts.parent for source in sources if _is_shard(source.manifest)}
    shard_places = set(map(durable.real_path, shards))
    for target in targets:
        _check_kind(target)
        for path in _published_beside(target):
            check_replaceable(path, _tag_of(path, target))
        for place in _places_of(target):
            _refuse_companions(place)
        _refuse_alias(target, known)
        _refuse_shard_directory(target, shard_places)


def check_replaced(target: Path, sources: Sequence[RunArtifacts]) -> None:
    """Raise RefusedError when ``target`` is another run's merged result, or the rows of a dataset. Reads only.

    What its receipt names as the same run, or as made of one of the same inputs, is an earlier projection. Without a receipt
    its coverage tells whose it is. What has neither may be what a crash left, and is replaced unless it holds what is to be
    answered.
    """
    for place in _places_of(target):
        told = told_beside(RunArtifacts(place))
        if told is not None and not _is_earlier(told, RunArtifacts(place), sources):
            whose = f"run {told.get('run_id')}, benchmark {told.get('benchmark')}"
            raise RefusedError(f"the target is the merged result of others ({whose}).", _ELSEWHERE, target)
    if is_companion(target) and target.exists():
        raise RefusedError("the target is called like a companion of a run, and exists.", _ELSEWHERE, target)
    line = _unanswered_line(target)
    if line is not None:
        raise RefusedError(f"the target is a dataset: its line {line} has no answer.", _ELSEWHERE, target)


def check_names(target: Path, sources: Sequence[RunArtifacts]) -> None:
    """Raise RefusedError when a receipt at ``target`` could not name one of ``sources``: a pattern finds any name on a disk."""
    for source in sources:
        path = str(source.rollouts)
        # A run may be named relative to its target; then what lies above both does not matter.
        if jsonl.escaped(path) != path and jsonl.escaped(name := name_of_input(source.rollouts, target)) != name:
            raise RefusedError("the path is no UTF-8, and a receipt names its inputs in it.", "Rename it.", source.rollouts)


def _check_kind(target: Path) -> None:
    if target.is_symlink() and not target.exists():
        raise RefusedError("the target is a link to nothing.", "Remove the link, or name a file.", target)
    if target.is_dir():
        raise RefusedError("the target is a directory.", "Name a file in it.", target)
    if target.exists() and not target.is_file():
        raise RefusedError("the target is not a regular file.", _ELSEWHERE, target)
    ancestor = next(parent for parent in target.absolute().parents if parent.exists() or parent.is_symlink())
    if not ancestor.is_dir():
        raise RefusedError(f"{ancestor} is no directory.", _ELSEWHERE, target)


def _places_of(target: Path) -> list[Path]:
    """Where something is replaced, as rollouts paths: ``target``, and what it and its reports lead to as links."""
    links = [path for path in _published_beside(target) if path.is_symlink()]
    led_to = [(durable.real_path(path), _tag_of(path, target)) for path in links]
    others = [place.with_name(place.name.removesuffix(tag) + target.suffix) for place, tag in led_to]
    return list(dict.fromkeys((target, durable.real_path(target), *others)))


def _tag_of(path: Path, target: Path) -> str:
    return path.name.removeprefix(target.stem)


def _refuse_companions(place: Path) -> None:
    present = [path.name for path in RunArtifacts(place).recovery_companions_present()] or _in_other_case(place)
    if present:
        names = ", ".join(present)
        raise RefusedError(f"the target belongs to a run: {names} beside it.", _ELSEWHERE, place)


def _in_other_case(place: Path) -> list[str]:
    """Companions whose names differ in case only: one file where this directory is copied to a system without case."""
    wanted = {path.name.casefold() for path in RunArtifacts(place).recovery_companions}
    parent = place.absolute().parent
    return sorted(path.name for path in parent.iterdir() if path.name.casefold() in wanted) if parent.is_dir() else []


def _refuse_alias(target: Path, known: SourceFiles) -> None:
    same = known.same_as(target)
    if same is not None:
        what = "an input" if known.is_rollouts(same) else f"{same.name}, a companion of an input"
        raise RefusedError(f"the target is {what}.", _ELSEWHERE, target)
    written = {found.name for path in _written_beside(target) if (found := known.same_as(path)) is not None}
    if written:
        names = ", ".join(sorted(written))
        raise RefusedError(f"the target's companions would replace those of an input: {names}.", _ELSEWHERE, target)


def _written_beside(target: Path) -> Iterable[Path]:
    merged = RunArtifacts(target)
    return (*_published_beside(target), merged.exports, merged.health, merged.verdicts, merged.merge_lock)


def _published_beside(target: Path) -> Iterable[Path]:
    merged = RunArtifacts(target)
    return (merged.coverage, merged.aggregate, merged.receipt)


def _refuse_shard_directory(target: Path, places: set[Path]) -> None:
    resolved = durable.real_path(target)
    if places & set(resolved.parents) or any(_is_shard(path) for path in resolved.parent.glob("*_manifest.json")):
        raise RefusedError("the target is inside the directory of a shard.", _ELSEWHERE, target)


def _is_shard(path: Path) -> bool:
    manifest = _manifest_at(path)
    return manifest is not None and manifest.shard is not None


def _manifest_at(path: Path) -> Manifest | None:
    try:
        return read_manifest(path)
    except (GymEvalError, OSError):
        return None


def _is_earlier(told: dict[str, Any], merged: RunArtifacts, sources: Sequence[RunArtifacts]) -> bool:
    ours = [(found.run_id, found.benchmark) for source in sources if (found := _manifest_at(source.manifest)) is not None]
    # A list: what a damaged file tells may be of any type.
    if (told.get("run_id"), told.get("benchmark")) in ours:
        return True
    # Files without a manifest have no identity but their place, which a coverage does not tell.
    if "inputs" not in told and not ours and told.get("run_id") == RUN:
        return True
    inputs = told.get("inputs")
    records = cast("list[Any]", inputs) if isinstance(inputs, list) else []
    base = merged.rollouts.absolute().parent
    places = {_place_in(base, str(record.get("path"))) for record in records if isinstance(record, dict)}
    return not places.isdisjoint(durable.real_path(source.rollouts) for source in sources)


def _place_in(base: Path, path: str) -> Path | None:
    try:
        return durable.real_path(base / path)
    except ValueError:
        # A NUL, or what is no UTF-8: no disk has such a file.
        return None


def _unanswered_line(target: Path) -> int | None:
    """The number of the first line that is to be answered, from 1; None where there is none, as in any file of results."""
    if not target.is_file():
        return None
    with target.open("rb") as file:
        lines = file.read(_BYTES).split(b"\n", _LINES)[:_LINES]
    return next((number for number, line in enumerate(lines, 1) if _is_unanswered(line)), None)


def _is_unanswered(line: bytes) -> bool:
    try:
        row = jsonl.loads(line)
    except ValueError:
        # What is no row says nothing: a torn line, an empty one, or one that is larger than what is looked at.
        return False
    if not isinstance(row, dict):
        return False
    fields = cast("dict[str, Any]", row)
    return not any(key in fields for key in _ANSWERED) and any(
        isinstance(value, str | list | dict) for value in fields.values()
    )

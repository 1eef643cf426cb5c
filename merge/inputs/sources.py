"""Which runs a merge reads: directories, paths, globs and links become distinct shards of one experiment.

Reads manifests only. Everything that makes inputs unfit is found here, before anything is written.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from collector.artifacts import RunArtifacts
from collector.durable import FileId
from collector.errors import NotFoundError, RefusedError, RequestError
from collector.formats.manifest import Manifest, read_manifest
from merge.inputs.closed_places import note_closed

#: What lies beside rollouts and holds none; a glob over a run's directory matches some of it, too.
_COMPANION_ENDS: Final = (
    "_moved.jsonl",
    "_manifest.json",
    "_coverage.json",
    "_aggregate_metrics.json",
    "_merge.json",
    "_health.json",
    "_failures.jsonl",
    "_materialized_inputs.jsonl",
    "_attempts.jsonl",
    "_exports.jsonl",
    "_reward_profiling.jsonl",
    "_verdicts.jsonl",
)
_SHARD_PATTERNS: Final = ("*-of-*/rollouts.jsonl", "g[0-9]*/*-of-*/rollouts.jsonl")
_GLOB_SIGNS: Final = frozenset("*?[")


def find_runs(inputs: Sequence[str | Path]) -> list[RunArtifacts]:
    """The runs that ``inputs`` name, each once, with or without a manifest. Raises NotFoundError, RequestError or RefusedError.

    An input is a rollouts path, a glob, or the directory of a shard, of the only run in it, of a benchmark, or of a submitted
    run with one benchmark.
    """
    found = _distinct(path for item in inputs for path in _expand(str(item)))
    if not found:
        raise NotFoundError("no input is named.", "Name shards, globs or a run's directory.")
    return [RunArtifacts(path) for path in found]


def are_legacy(runs: Sequence[RunArtifacts]) -> bool:
    """Whether ``runs`` are files without a manifest. Raises RefusedError when only some are: they cannot be one experiment."""
    with_manifest = [run for run in runs if run.manifest.exists() or run.manifest.is_symlink()]
    if with_manifest and len(with_manifest) < len(runs):
        other = next(run for run in runs if run not in with_manifest)
        raise RefusedError(
            f"a file without a manifest, among shards of a run such as {with_manifest[0].rollouts}.",
            "Merge them apart: nothing shows that they are one experiment.",
            other.rollouts,
        )
    return not with_manifest


def read_source(artifacts: RunArtifacts) -> tuple[RunArtifacts, Manifest]:
    """The run at ``artifacts`` with its manifest. Raises NotFoundError when it was never prepared."""
    manifest = read_manifest(artifacts.manifest)
    if manifest is None:
        raise NotFoundError(
            "there is no prepared run.", "A merge reads runs with a manifest; name the original file.", artifacts.manifest
        )
    return artifacts, manifest


def _expand(item: str) -> list[Path]:
    path = Path(item)
    if path.is_dir():
        return _in_directory(path)
    if path.exists():
        _refuse_companion(path)
        if not path.is_file():
            raise RequestError("the input is no regular file, and it is read more than once.", "Copy it into one.", path)
        return [path]
    if _GLOB_SIGNS.isdisjoint(item):
        raise NotFoundError("there is no such input.", "Check the path.", path)
    note_closed(item, _GLOB_SIGNS)
    matches = map(Path, sorted(glob.glob(item, recursive=True)))  # noqa: PTH207 - patterns may be absolute
    found = [path for match in matches for path in _of_match(match)]
    if not found:
        raise NotFoundError("the pattern matches no rollouts.", "Check the pattern.", item)
    return found


def _of_match(match: Path) -> list[Path]:
    """What a pattern's match holds; one that holds nothing is passed over, since patterns match more than is meant."""
    if match.is_dir():
        return _shards_of(match) or _own_rollouts(match)
    return [match] if _may_hold_rollouts(match) else []


def _in_directory(path: Path) -> list[Path]:
    shards = _shards_of(path)
    if shards:
        return shards
    own = _own_rollouts(path)
    if len(own) > 1:
        names = ", ".join(file.name for file in own)
        raise RefusedError(f"several runs lie in this directory: {names}.", "Name the file of one.", path)
    if own:
        return own
    benchmarks = {entry: shards for entry in sorted(path.iterdir()) if entry.is_dir() and (shards := _shards_of(entry))}
    if len(benchmarks) > 1:
        names = ", ".join(entry.name for entry in benchmarks)
        raise RefusedError(f"the run has several benchmarks: {names}.", "Name the directory of one.", path)
    for shards in benchmarks.values():
        return shards
    if any(_own_rollouts(entry) for entry in path.iterdir() if entry.is_dir()):
        what = "there are rollouts in directories of this one, and nothing says that they belong together."
        raise NotFoundError(what, f"If they do, name them: '{path}/*'.", path)
    raise NotFoundError(
        "there is neither a run nor a shard in this directory.",
        "Name a rollouts file, or the directory of a run or a benchmark.",
        path,
    )


def _shards_of(benchmark: Path) -> list[Path]:
    if not benchmark.is_dir():
        return []
    # A resubmission plans what is unfinished anew, in a directory of its own beside the first shards.
    return sorted(path for pattern in _SHARD_PATTERNS for path in (benchmark / "shards").glob(pattern))


def _own_rollouts(directory: Path) -> list[Path]:
    """The prepared rollouts of a directory: those of the usual name alone, else all there are."""
    own = directory / "rollouts.jsonl"
    return [own] if RunArtifacts(own).manifest.is_file() else prepared_in(directory)


def prepared_in(directory: Path) -> list[Path]:
    """The rollouts files of ``directory`` that lie beside a manifest, whatever they are called."""
    files = sorted(file for file in directory.glob("*.jsonl") if not is_companion(file))
    return [file for file in files if RunArtifacts(file).manifest.is_file()]


def _may_hold_rollouts(path: Path) -> bool:
    return path.suffix == ".jsonl" and not is_companion(path)


def is_companion(path: Path) -> bool:
    """Whether ``path`` is called like a file that lies beside rollouts and holds none."""
    return path.name.endswith(_COMPANION_ENDS)


def _refuse_companion(path: Path) -> None:
    if is_companion(path):
        raise RefusedError("the file is a companion of a run, not its rollouts.", "Name the rollouts file.", path)


def _distinct(paths: Iterable[Path]) -> list[Path]:
    """Each file once, links resolved; of several hard links the one that has the companions of a run."""
    names: dict[FileId, list[Path]] = {}
    for path in paths:
        try:
            original = Path(os.path.realpath(path, strict=True))
        except OSError as error:
            raise NotFoundError("the input is a link to nothing.", "Check the path.", path) from error
        names.setdefault(FileId.of(original.stat()), []).append(original)
    return [next((p for p in same if RunArtifacts(p).manifest.exists()), same[0]) for same in names.values()]

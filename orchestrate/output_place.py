"""Whether an output may be where it is wanted, and files can be made there; asked before a lock is.

A lock's own words would be about locks.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from collector import durable
from collector.artifacts import RunArtifacts
from collector.errors import RefusedError, StorageError
from merge.inputs.source_files import files_of
from merge.publication.replaceable import check_reports

#: As in RunDir, which brings the whole configuration: other programs write a plan.json, and not this beside it.
_OF_A_RUN: Final = ("plan.json", "resolved-config.yaml")
_ELSEWHERE: Final = "Name an output outside it; nothing was changed."


def check_place(output: Path) -> None:
    """Raise RefusedError where the owner of the place says no, StorageError where no file can be. Leaves nothing behind.

    Directories that are missing will be made, so that the nearest one that is there decides.
    """
    place = output.absolute().parent
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place):
            return
    except PermissionError as error:
        what = f"no file may be made in {place}: {error.strerror}."
        raise RefusedError(what, "Name another output, or ask for write access.", output) from error
    except OSError as error:
        raise StorageError(f"no file can be made in {place}: {error.strerror}.", "Name another output.", output) from error


def check_written(run: RunArtifacts, inputs: Iterable[Path]) -> None:
    """Raise RefusedError when a file that a run at ``run`` writes is an input, or nothing to be replaced. Reads only.

    Coverage, metrics and settings are replaced, and of a link what it leads to: only a file with the same ending, and none of
    another run.
    """
    check_no_input(run, inputs)
    check_reports(run, (run.coverage, run.aggregate, run.config))


def check_no_input(run: RunArtifacts, inputs: Iterable[Path]) -> None:
    """Raise RefusedError when a file that a run at ``run`` writes is one of ``inputs``, under whatever name. Reads only."""
    known = list(inputs)
    for path in (*files_of(run), run.companion("_health.lock")):
        if any(_is_same(path, other) for other in known):
            what = f"{path.name}, which this run would write, is one of its inputs."
            raise RefusedError(what, "Name another output, or call the input differently.", path)


def _is_same(path: Path, other: Path) -> bool:
    """Whether both are, or would be, one file: by a link, a hard link or another spelling of its place."""
    if durable.real_path(path) == durable.real_path(other):
        return True
    return path.exists() and other.exists() and path.samefile(other)


def run_around(output: Path) -> Path | None:
    """The directory of the submitted run in which ``output`` would lie, links followed; None outside every run."""
    above = durable.real_path(output).parents
    return next((root for root in above if all((root / name).exists() for name in _OF_A_RUN)), None)


def check_outside_runs(output: Path) -> None:
    """Raise RefusedError when ``output`` is in a submitted run, whose files are those of its jobs and merges alone."""
    if (root := run_around(output)) is not None:
        raise RefusedError(f"the output is inside the submitted run {root.name}.", _ELSEWHERE, output)


def check_own_run(target: Path, inputs: Iterable[Path]) -> None:
    """Raise RefusedError when a merge of ``inputs`` into ``target`` would take a place or a file of another run.

    In a submitted run, results of that run alone: of a benchmark where its result belongs, and elsewhere in new files.
    """
    root = run_around(target)
    if root is None:
        return
    place = durable.real_path(target)
    is_of_benchmark = place.parent.parent == root and place.name in {"rollouts.jsonl", "rollouts.partial.jsonl"}
    owner = place.parent if is_of_benchmark else root
    if not all(durable.real_path(path).is_relative_to(owner) for path in inputs):
        whose = f"{root.name}/{owner.name}" if is_of_benchmark else root.name
        raise RefusedError(f"the target is inside the submitted run {whose}, and an input is not.", _ELSEWHERE, target)
    if not is_of_benchmark and place.exists() and not place.with_name(f"{place.stem}_merge.json").exists():
        raise RefusedError(f"the target is a file of the submitted run {root.name}.", _ELSEWHERE, target)

"""Whether a report may stand where it is to: what is there is replaced, and of a link what it leads to."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from collector import durable
from collector.artifacts import RunArtifacts
from collector.errors import RefusedError

_CURE: Final = "Remove it, or use another place; nothing was changed."


def check_replaceable(path: Path, ending: str) -> None:
    """Raise RefusedError unless ``path`` is free, a file, or a link to a file whose name has the same ``ending``. Reads only.

    A link of any other kind is a slip: rows, a dataset or somebody's notes would become a report.
    """
    if not path.is_symlink():
        if path.exists() and not path.is_file():
            raise RefusedError("it is to be replaced, and is no regular file.", _CURE, path)
        return
    target = durable.real_path(path)
    if not target.is_file():
        raise RefusedError("it is to be replaced, and is a link that leads to no file.", _CURE, path)
    if not target.name.endswith(ending):
        raise RefusedError(f"it is to be replaced, and is a link to {target}, which is no *{ending}.", _CURE, path)


def check_reports(run: RunArtifacts, paths: Iterable[Path]) -> None:
    """Raise RefusedError unless each of ``paths``, companions of ``run``, may be replaced and leads to no other run's."""
    for path in paths:
        ending = path.name.removeprefix(run.rollouts.stem)
        check_replaceable(path, ending)
        place = durable.real_path(path)
        owner = RunArtifacts(place.with_name(f"{place.name.removesuffix(ending)}{run.rollouts.suffix}"))
        if path.is_symlink() and owner.rollouts != durable.real_path(run.rollouts) and _is_of_a_run(owner):
            raise RefusedError(f"it is to be replaced, and is a link to {place}, which is another run's.", _CURE, path)


def _is_of_a_run(owner: RunArtifacts) -> bool:
    return bool(owner.recovery_companions_present()) or owner.receipt.exists()

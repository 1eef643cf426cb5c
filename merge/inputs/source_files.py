"""The files of a merge's inputs as a disk knows them, so that none of them is replaced under another name. Reads only."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from collector import durable
from collector.artifacts import RunArtifacts
from collector.durable import FileId


@lru_cache(maxsize=1 << 13)
def files_of(artifacts: RunArtifacts) -> tuple[Path, ...]:
    """Every file that belongs to a run, whether it exists or not."""
    return (
        artifacts.rollouts,
        *artifacts.recovery_companions,
        artifacts.moved,
        artifacts.coverage,
        artifacts.config,
        artifacts.aggregate,
        artifacts.receipt,
        artifacts.exports,
        artifacts.health,
        artifacts.verdicts,
        artifacts.lock,
        artifacts.merge_lock,
    )


class SourceFiles:
    """Every file of some runs, by its inode and by its place. Looked at once: there may be thousands of runs."""

    def __init__(self, sources: Sequence[RunArtifacts]) -> None:
        self._by_id: dict[FileId, Path] = {}
        self._by_place: dict[str, Path] = {}
        self._rollouts = {source.rollouts for source in sources}
        parents: dict[Path, Path] = {}
        for source in sources:
            parent = source.rollouts.parent
            if parent not in parents:
                parents[parent] = durable.real_path(parent)
            for path in files_of(source):
                self._add(path, parents[parent])

    def _add(self, path: Path, parent: Path) -> None:
        place = f"{parent}{os.sep}{path.name}"
        try:
            info = os.lstat(path)
            if stat.S_ISLNK(info.st_mode):
                self._by_place.setdefault(str(durable.real_path(path)).casefold(), path)
                info = os.stat(path)  # noqa: PTH116 - beside lstat, which has no like of its own here
        except OSError:
            # A file that is not there has a place all the same.
            info = None
        # On a file system without case another spelling is the same file.
        self._by_place.setdefault(place.casefold(), path)
        if info is not None:
            self._by_id.setdefault(FileId.of(info), path)

    def is_rollouts(self, path: Path) -> bool:
        """Whether ``path``, which is one of the files, holds the rows of a run."""
        return path in self._rollouts

    def same_as(self, path: Path) -> Path | None:
        """The file that ``path`` is, links followed, or would be; None for a file of nobody. A hard link is the same file."""
        found = self._by_place.get(str(durable.real_path(path)).casefold())
        if found is None and path.exists():
            found = self._by_id.get(FileId.of(path.stat()))
        return found

"""Which runs a health check is asked for, and what a run's settings say about the automatic one."""

from __future__ import annotations

from pathlib import Path

from collector.artifacts import RunArtifacts
from collector.errors import NotFoundError
from collector.settings import RunSettings
from merge.health.run import HealthChoice
from merge.inputs.sources import is_companion


def choose_health(settings: RunSettings) -> HealthChoice | None:
    """The automatic check that ``settings`` ask for; None when it is switched off."""
    return None if settings.disable_health_check else HealthChoice(settings.health_check_ignored_checks)


def runs_in(path: Path, name: str = "rollouts.jsonl") -> list[RunArtifacts]:
    """The rollouts files that ``path`` stands for: itself, the one called ``name`` in it, or those of the benchmarks in it.

    A benchmark that is not merged yet is checked shard by shard. Raises NotFoundError when there is none.
    """
    if path.is_file():
        if is_companion(path):
            raise NotFoundError("the file is a companion of a run, not its rollouts.", "Name the rollouts file.", path)
        return [RunArtifacts(path)]
    if not path.is_dir():
        raise NotFoundError("there is no such file or directory.", "Check the path.", path)
    found = _in_benchmark(path, name) or [run for entry in sorted(path.iterdir()) for run in _in_benchmark(entry, name)]
    if not found:
        raise NotFoundError(f"there is no {name} in this directory.", "Name the file.", path)
    return found


def _in_benchmark(directory: Path, name: str) -> list[RunArtifacts]:
    own = directory / name
    if own.is_file():
        return [RunArtifacts(own)]
    return [RunArtifacts(shard) for shard in sorted((directory / "shards").glob(f"*-of-*/{name}"))]

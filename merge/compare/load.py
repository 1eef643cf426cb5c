"""One side of a comparison: what a metrics file says, with NeMo Gym's own files read as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any, Final

import msgspec

from collector import jsonl
from collector.artifacts import RunArtifacts
from collector.errors import CorruptArtifactError, NotFoundError, RefusedError
from collector.formats import rows
from collector.outcome_checks import is_reward, shown
from merge.compare.settings import settings_beside
from merge.metrics.fields import REWARD

_METRICS_END: Final = "_aggregate_metrics.json"
_MEAN: Final = "mean/"
_NO_METRICS: Final = "not a metrics file: it is a list of one object an agent."
#: Its entries, and a list in one of them, not yet read.
_file: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_list: Final = msgspec.json.Decoder(list[msgspec.Raw])
#: Counts are whole numbers that a float of another reader holds, too.
_MOST: Final = 1 << 53


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A run as its metrics file describes it."""

    path: Path
    agent: str
    #: Digest of the tasks' content; empty when the file has none.
    source_digest: str
    is_partial: bool
    #: Rollouts that were expected and that have a score; None when the file does not say.
    expected: int | None
    scored: int | None
    #: What the mean reward would be with all others 0, and 1; None for rewards outside [0, 1] or without coverage.
    bounds: tuple[float, float] | None
    #: ``mean/<field>`` over all rollouts.
    means: Mapping[str, float]
    #: By field, the mean of every task that has one.
    tasks: Mapping[str, Mapping[int, float]]
    #: The experiment as its manifest describes it, by key path; None when no manifest is left.
    settings: Mapping[str, Any] | None = None

    @property
    def is_complete(self) -> bool:
        """Whether every expected rollout has a score."""
        return self.expected is not None and self.scored == self.expected


def load_side(named: Path, agent: str | None = None) -> Side:
    """The run that ``named`` names: a merged rollouts file, a directory with one, or a metrics file.

    Raises NotFoundError without metrics, CorruptArtifactError for another shape, RefusedError when ``agent`` must be named.
    """
    path = _metrics_path(named)
    entries = _entries(path)
    names = [name for name, _ in entries]
    if agent is None and len(entries) > 1:
        raise RefusedError(f"the file has several agents: {', '.join(names)}.", "Name one with --agent.", path)
    chosen = next((entry for name, entry in entries if agent in (None, name)), None)
    if chosen is None:
        raise NotFoundError(f"the file has no agent {agent!r}.", f"It has: {', '.join(names)}.", path)
    return _side(path, chosen)


def _metrics_path(named: Path) -> Path:
    if named.is_dir():
        found = [path for path in (RunArtifacts(named / "rollouts.jsonl").aggregate,) if path.is_file()]
        found = found or sorted(named.glob(f"*{_METRICS_END}")) or sorted(named.glob(f"*/rollouts{_METRICS_END}"))
        if len(found) > 1:
            raise RefusedError(f"several metrics files: {', '.join(map(str, found))}.", "Name one.", named)
        if not found:
            raise NotFoundError("there are no metrics in this directory.", "Run gym eval aggregate first.", named)
        return found[0]
    path = named if named.name.endswith(_METRICS_END) else RunArtifacts(named).aggregate
    if not path.is_file():
        raise NotFoundError("there are no metrics.", "Run gym eval aggregate first.", path)
    return path


def _entries(path: Path) -> list[tuple[str, dict[str, msgspec.Raw]]]:
    try:
        entries = _file.decode(path.read_bytes())
    except (msgspec.ValidationError, RecursionError) as error:
        raise CorruptArtifactError(path, 0, _NO_METRICS) from error
    except ValueError as error:
        raise CorruptArtifactError(path, 0, f"not JSON ({error}).") from error
    if not entries:
        raise CorruptArtifactError(path, 0, _NO_METRICS)
    return [(_agent_of(entry, path), entry) for entry in entries]


def _agent_of(entry: Mapping[str, msgspec.Raw], path: Path) -> str:
    reference = _member(entry, "agent_ref", path)
    name = reference.get("name") if isinstance(reference, dict) else None
    return name if isinstance(name, str) else "agent"


def _member(entry: Mapping[str, msgspec.Raw], name: str, path: Path) -> Any:
    """What ``entry`` says there; None where it says nothing."""
    return _value(entry[name], path) if name in entry else None


def _value(raw: msgspec.Raw, path: Path) -> Any:
    try:
        return jsonl.loads(bytes(raw))
    except ValueError as error:
        raise CorruptArtifactError(path, 0, f"not JSON ({error}).") from error


def _side(path: Path, entry: Mapping[str, msgspec.Raw]) -> Side:
    overall = {
        **_numbers(_member(entry, "key_metrics", path), path),
        **_numbers(_member(entry, "agent_metrics", path), path),
    }
    low, high = overall.get("coverage/reward_lower_bound"), overall.get("coverage/reward_upper_bound")
    digest = _member(entry, "source_digest", path)
    return Side(
        path=path,
        agent=_agent_of(entry, path),
        source_digest=digest if isinstance(digest, str) else "",
        is_partial=_member(entry, "partial", path) is True,
        expected=_count(overall, "coverage/expected", path),
        scored=_count(overall, "coverage/scored", path),
        bounds=None if low is None or high is None else (low, high),
        means={name.removeprefix(_MEAN): value for name, value in overall.items() if name.startswith(_MEAN)},
        tasks=_tasks(entry.get("group_level_metrics"), path),
        settings=settings_beside(RunArtifacts(path.with_name(f"{path.name.removesuffix(_METRICS_END)}.jsonl"))),
    )


def _count(overall: Mapping[str, float], name: str, path: Path) -> int | None:
    value = overall.get(name)
    if value is not None and not (0 <= value <= _MOST and value == int(value)):
        raise CorruptArtifactError(path, 0, f"not a metrics file: {name} is {shown(value)}, which counts nothing.")
    return None if value is None else int(value)


def _tasks(groups: msgspec.Raw | None, path: Path) -> dict[str, dict[int, float]]:
    tasks: dict[str, dict[int, float]] = {REWARD: {}}
    # One after the other: all of a large run at once would take six times the memory of their text.
    for group in map(_value, _parts(groups), repeat(path)):
        number = group.get(rows.TASK_INDEX) if isinstance(group, dict) else None
        if not isinstance(number, int):
            continue
        for name, value in _numbers(group, path, only=_MEAN).items():
            tasks.setdefault(name.removeprefix(_MEAN), {})[number] = value
    return tasks


def _parts(groups: msgspec.Raw | None) -> list[msgspec.Raw]:
    try:
        return [] if groups is None else _list.decode(groups)
    except msgspec.ValidationError:
        return []


def _numbers(values: object, path: Path, *, only: str = "") -> dict[str, float]:
    """The numbers among ``values`` whose names begin with ``only``."""
    if not isinstance(values, dict):
        return {}
    found: dict[str, float] = {
        name: value
        for name, value in values.items()
        if name.startswith(only) and isinstance(value, int | float) and not isinstance(value, bool)
    }
    for name, value in found.items():
        if not is_reward(value):
            raise CorruptArtifactError(path, 0, f"not a metrics file: {name} is a number that no float holds.")
    return found

"""What was found in a run's shards, kept beside its plan so that nobody reads a journal twice that has not changed since.

The file ``shard-facts.json`` is derived: each entry tells of which files it was read, and one of whose files has another size,
time or identity is read anew. Losing it, or not being able to write it, costs time and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from collector import durable
from collector.artifacts import RunArtifacts
from collector.errors import GymEvalError
from collector.settings import RetrySettings
from collector.shard.store import RolloutStore
from collector.state.coverage import Coverage
from orchestrate.runs.directory import RunDir

FORMAT: Final = 3
#: Unknown shards from which on other processors are worth the fork of 20 ms, and how many are read at a time there.
_MANY: Final = 400
_AT_ONCE: Final = 100

#: What a shard's files were like; None without one of them.
_Mark: TypeAlias = tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class RecordedShard:
    """One shard as its files describe it."""

    coverage: Coverage
    sessions: int
    #: When its last journal event was written; empty before the first.
    last_at: str


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    """A shard's facts, and what tells that its files are still those that were read."""

    mark: tuple[int, ...]
    #: The settings of retries decide what is final.
    retry: str
    coverage: str
    sessions: int
    last_at: str


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    shards: dict[str, _Entry]
    schema_version: int = FORMAT


class KnownShards:
    """The facts of a run's shards: read where they are not known yet."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._prefix = f"{run.root}/"
        self._known = _read(run.shard_facts)
        #: Taken when they were all looked at together.
        self._marks: dict[str, _Mark] = {}
        self._is_worth_keeping = False

    def look_at(self, shards: Sequence[RunArtifacts], retry: RetrySettings) -> None:
        """Read those of ``shards`` that are not known, on all processors where they are many; ``of`` tells what is wrong."""
        settings = retry.model_dump_json()
        unknown = [artifacts for artifacts in shards if not self._is_known(artifacts, settings)]
        if len(unknown) < _MANY:
            return
        # Loads what starts processes.
        from merge.fan_out import share_out  # noqa: PLC0415

        def read(begin: int) -> dict[str, _Entry]:
            return _read_some({self._name(one): one for one in unknown[begin : begin + _AT_ONCE]}, retry, settings)

        # Workers inherit the list of shards: only where each part begins is sent to them.
        for found in share_out(read, range(0, len(unknown), _AT_ONCE), alone=2):
            for name, entry in found.items():
                self._marks[name] = entry.mark
                self._remember(name, entry)

    def recorded(self, artifacts: RunArtifacts) -> Coverage:
        """The coverage of one shard under whichever settings of retries it was counted last: what is recorded is the same.

        Raises what RolloutStore.read raises.
        """
        known = self._known.get(self._name(artifacts))
        if known is not None and known.mark == _mark(artifacts):
            return Coverage.model_validate_json(known.coverage)
        with RolloutStore.read(artifacts) as store:
            return store.coverage(RetrySettings())

    def of(self, artifacts: RunArtifacts, retry: RetrySettings) -> RecordedShard:
        """The facts of one shard. Raises what RolloutStore.read raises."""
        name, settings = self._name(artifacts), retry.model_dump_json()
        mark = self._marks[name] if name in self._marks else _mark(artifacts)
        known = None if mark is None else self._find(name, mark, settings)
        if known is None:
            # Read here, so that what is wrong with it is raised; without one of its files there is nothing to keep.
            known = _read_shard(artifacts, mark or (), retry, settings)
            if mark is not None:
                self._remember(name, known)
        return RecordedShard(Coverage.model_validate_json(known.coverage), known.sessions, known.last_at)

    def _is_known(self, artifacts: RunArtifacts, settings: str) -> bool:
        name = self._name(artifacts)
        if name not in self._known:
            # Whoever reads it looks at its files first.
            return False
        mark = self._marks[name] = _mark(artifacts)
        # Without one of its files it is no work for many: what is wrong is told when it is asked for.
        return mark is None or self._find(name, mark, settings) is not None

    def _name(self, artifacts: RunArtifacts) -> str:
        path = artifacts.rollouts
        return str(path).removeprefix(self._prefix).removesuffix(f"/{path.name}")

    def _find(self, name: str, mark: tuple[int, ...], settings: str) -> _Entry | None:
        known = self._known.get(name)
        return known if known is not None and (known.mark, known.retry) == (mark, settings) else None

    def _remember(self, name: str, entry: _Entry) -> None:
        self._known[name] = entry
        # A shard at work is another one at the next look.
        if not self._is_worth_keeping:
            self._is_worth_keeping = not entry.last_at or Coverage.model_validate_json(entry.coverage).is_final

    def keep(self) -> None:
        """Write down what will still be true at the next look. A run that may only be read stays as it is."""
        if self._is_worth_keeping:
            with suppress(OSError):
                durable.publish(self._run.shard_facts, msgspec.json.encode(_File(self._known)) + b"\n")


def _read_some(places: Mapping[str, RunArtifacts], retry: RetrySettings, settings: str) -> dict[str, _Entry]:
    """The entries of those that can be read."""
    found: dict[str, _Entry] = {}
    for name, artifacts in places.items():
        # Taken before the journal is read: a line that is added meanwhile makes the entry stale, never wrong.
        mark = _mark(artifacts)
        if mark is not None:
            with suppress(GymEvalError):
                found[name] = _read_shard(artifacts, mark, retry, settings)
    return found


def _read_shard(artifacts: RunArtifacts, mark: tuple[int, ...], retry: RetrySettings, settings: str) -> _Entry:
    with RolloutStore.read(artifacts) as store:
        coverage = store.coverage(retry).model_dump_json()
        return _Entry(mark, settings, coverage, len(store.history.sessions), store.history.last_at)


def _mark(artifacts: RunArtifacts) -> _Mark:
    """The marks of every file that a shard is read from; None while a file is missing that each shard has.

    A shard goes on by lines in its journal and in the list of what left it; the others change only where they are damaged.
    """
    *needed, moved = artifacts.names_read
    found: list[int] = []
    for name in needed:
        mark = _of_file(name)
        if mark is None:
            return None
        found += mark
    return (*found, *(_of_file(moved) or ()))


def _of_file(name: str) -> tuple[int, ...] | None:
    try:
        info = os.stat(name)  # noqa: PTH116 - making a path takes longer
    except OSError:
        return None
    return (info.st_ino, info.st_size, info.st_mtime_ns)


def _read(path: Path) -> dict[str, _Entry]:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_File)
    except (OSError, msgspec.DecodeError):
        return {}
    return dict(found.shards) if found.schema_version == FORMAT else {}

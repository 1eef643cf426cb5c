"""What was found in a run's shards, kept beside its plan so that nobody reads a journal twice that has not changed since.

The file ``shard-facts.json`` is derived: each entry tells of which journal it was read, and one whose journal has another size,
time or identity is read anew. Losing it, or not being able to write it, costs time and nothing else.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from collector import durable
from collector.artifacts import RunArtifacts
from collector.coverage import Coverage
from collector.settings import RetrySettings
from collector.store import RolloutStore
from orchestrate.rundir import RunDir

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class ShardFacts:
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
    coverage: msgspec.Raw
    sessions: int
    last_at: str


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    shards: dict[str, _Entry]
    schema_version: int = FORMAT


class KnownShards:
    """The facts of a run's shards: read where they are not known yet."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._known = _read(run.shard_facts)
        self._is_worth_keeping = False

    def recorded(self, artifacts: RunArtifacts) -> Coverage:
        """The coverage of one shard under whichever settings of retries it was counted last: what is recorded is the same.

        Raises what RolloutStore.read raises.
        """
        known = self._known.get(self._name(artifacts))
        if known is not None and known.mark == _mark(artifacts):
            return Coverage.model_validate_json(bytes(known.coverage))
        with RolloutStore.read(artifacts) as store:
            return store.coverage(RetrySettings())

    def of(self, artifacts: RunArtifacts, retry: RetrySettings) -> ShardFacts:
        """The facts of one shard. Raises what RolloutStore.read raises."""
        name = str(artifacts.rollouts.parent).removeprefix(f"{self._run.root}/")
        # Taken before the journal is read: a line that is added meanwhile makes the entry stale, never wrong.
        mark, settings, known = _mark(artifacts), retry.model_dump_json(), self._known.get(name)
        if known is not None and mark is not None and (known.mark, known.retry) == (mark, settings):
            return ShardFacts(Coverage.model_validate_json(bytes(known.coverage)), known.sessions, known.last_at)
        with RolloutStore.read(artifacts) as store:
            facts = ShardFacts(store.coverage(retry), len(store.history.sessions), store.history.last_at)
        if mark is not None:
            coverage = msgspec.Raw(facts.coverage.model_dump_json().encode())
            self._known[name] = _Entry(mark, settings, coverage, facts.sessions, facts.last_at)
            # A shard at work is another one at the next look.
            self._is_worth_keeping |= facts.coverage.is_final or not facts.last_at
        return facts

    def _name(self, artifacts: RunArtifacts) -> str:
        return str(artifacts.rollouts.parent.relative_to(self._run.root))

    def keep(self) -> None:
        """Write down what will still be true at the next look. A run that may only be read stays as it is."""
        if self._is_worth_keeping:
            with suppress(OSError):
                durable.publish(self._run.shard_facts, msgspec.json.encode(_File(self._known)) + b"\n")


def _mark(artifacts: RunArtifacts) -> tuple[int, ...] | None:
    """Every change of a shard begins with a line in its journal, or in the list of what left it. None without a journal."""
    journal = _of_file(artifacts.journal)
    return None if journal is None else (*journal, *(_of_file(artifacts.moved) or ()))


def _of_file(path: Path) -> tuple[int, ...] | None:
    try:
        info = path.stat()
    except OSError:
        return None
    return (info.st_ino, info.st_size, info.st_mtime_ns)


def _read(path: Path) -> dict[str, _Entry]:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_File)
    except (OSError, msgspec.DecodeError):
        return {}
    return dict(found.shards) if found.schema_version == FORMAT else {}

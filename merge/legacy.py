"""Rollouts files of NeMo Gym 0.7.0, which have no manifest and no journal, as inputs of a merge.

All files together are one set: a failure in one is settled by a result in another. Nothing vouches for their identity, so
reports say ``identity_verified: false``; without an inventory nobody knows what was expected, and they say that too.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from collector.artifacts import RunArtifacts
from collector.codes import Past
from collector.coverage import Coverage
from collector.errors import NoTasksError, RefusedError
from collector.manifest import Manifest
from collector.outcomes import RolloutState
from collector.retry import is_terminal, may_dispatch, state_under
from collector.settings import RetrySettings
from merge.coverage import reward_facts
from merge.legacy_rows import FailureRow, InventoryRow, LegacyFile, Place, ResultRow, read_legacy_file
from merge.select import SelectedRows, repeat_of, task_of
from merge.shards import FileMark, ShardView

#: What stands where a run of this project has its own id.
RUN: Final = "legacy"
#: The agent of rows that name none.
_UNNAMED: Final = "agent"


@dataclass(frozen=True, slots=True)
class LegacyAgent:
    """The rollouts of one agent over all files."""

    agent: str
    shards: tuple[ShardView, ...]
    coverage: Coverage
    inventory: array[int]
    source_digest: str


@dataclass(frozen=True, slots=True)
class LegacyInputs:
    """What the files hold together."""

    agents: tuple[LegacyAgent, ...]
    #: Rollouts files that have no inventory beside them.
    without_inventory: tuple[Path, ...]
    notes: tuple[str, ...]


@dataclass(slots=True)
class _Agent:
    results: dict[int, tuple[ResultRow, Place]] = field(default_factory=dict[int, tuple[ResultRow, Place]])
    failures: dict[int, list[FailureRow]] = field(default_factory=dict[int, list[FailureRow]])
    questions: dict[int, bytes] = field(default_factory=dict[int, bytes])


def read_legacy(runs: Sequence[RunArtifacts], retry: RetrySettings) -> LegacyInputs:
    """The files of ``runs`` as one set.

    Raises CorruptArtifactError, RefusedError for two different rows of one rollout, NoTasksError without a single row.
    """
    marks = {run.rollouts: _marks(run) for run in runs}
    files = [read_legacy_file(run.rollouts, run.failures, run.inventory) for run in runs]
    names = _Names(files)
    agents: dict[str, _Agent] = {}
    for file in files:
        _take(file, names, agents)
    if not agents:
        raise NoTasksError("there is not a single row.", "Nothing can be aggregated.", runs[0].rollouts)
    without = tuple(file.path for file in files if file.inventory is None)
    for name, agent in agents.items():
        _check_foreign(name, agent, is_known=not without)
    made = tuple(_made(name, agents[name], runs, marks, retry) for name in sorted(agents))
    return LegacyInputs(made, without, tuple(note for file in files for note in file.notes))


class _Names:
    """How rows are told apart: by agent, and by environment server where one agent stands behind several."""

    def __init__(self, files: Sequence[LegacyFile]) -> None:
        self._servers: dict[str, set[str]] = {}
        self._of_file: dict[tuple[Path, str], set[str]] = {}
        self._of_key: dict[tuple[Path, int], set[str]] = {}
        for file in files:
            for row in file.inventory or []:
                self._of_key.setdefault((file.path, row.key), set()).add(row.agent or _UNNAMED)
        for file in files:
            for row in (*(row for row, _ in file.results), *file.failures):
                if row.server is not None:
                    agent = self._agent(file, row)
                    self._servers.setdefault(agent, set()).add(row.server)
                    self._of_file.setdefault((file.path, agent), set()).add(row.server)

    def of(self, file: LegacyFile, row: ResultRow | FailureRow | InventoryRow) -> str:
        """Under which name the row counts."""
        agent = self._agent(file, row)
        if len(self._servers.get(agent, ())) < 2:
            return agent
        own = None if isinstance(row, InventoryRow) else row.server
        found = self._of_file.get((file.path, agent), set())
        return own or (next(iter(found)) if len(found) == 1 else agent)

    def _agent(self, file: LegacyFile, row: ResultRow | FailureRow | InventoryRow) -> str:
        """The row's own agent, or the one that the inventory has for its rollout."""
        planned = self._of_key.get((file.path, row.key), set())
        return row.agent or (next(iter(planned)) if len(planned) == 1 else _UNNAMED)


def _take(file: LegacyFile, names: _Names, agents: dict[str, _Agent]) -> None:
    for row, place in file.results:
        agent = agents.setdefault(names.of(file, row), _Agent())
        earlier = agent.results.get(row.key)
        if earlier is None:
            agent.results[row.key] = (row, place)
        elif earlier[1].read() != place.read():
            where = f"{earlier[1].path}:{earlier[1].line}"
            raise RefusedError(
                f"another row of rollout {row.task}-{row.repeat} than {where}.",
                "Nobody can tell which counts: remove one.",
                f"{place.path}:{place.line}",
            )
    for failure in file.failures:
        agent = agents.setdefault(names.of(file, failure), _Agent())
        agent.failures.setdefault(failure.key, []).append(failure)
    for row in file.inventory or []:
        agents.setdefault(names.of(file, row), _Agent()).questions[row.key] = row.question


def _check_foreign(name: str, agent: _Agent, *, is_known: bool) -> None:
    foreign = sorted({*agent.results, *agent.failures} - set(agent.questions)) if is_known else []
    if foreign:
        where = agent.results[foreign[0]][1].path if foreign[0] in agent.results else name
        rollout = f"{task_of(foreign[0])}-{repeat_of(foreign[0])}"
        raise RefusedError(f"rollout {rollout} is in no inventory.", "The files are not of one run.", where)


def _made(
    name: str, agent: _Agent, runs: Sequence[RunArtifacts], marks: dict[Path, dict[Path, FileMark]], retry: RetrySettings
) -> LegacyAgent:
    every = array("q", sorted({*agent.questions, *agent.results, *agent.failures}))
    coverage = _coverage(name, agent, every, retry)
    digest = _source_digest(agent)
    unsettled = {key: found for key, found in agent.failures.items() if key not in agent.results}
    missing = array("q", (key for key in every if key not in agent.results and key not in agent.failures))
    shards: list[ShardView] = []
    for run in runs:
        own = sorted(key for key, (_, place) in agent.results.items() if place.path == run.rollouts)
        selected = _selected([agent.results[key][1] for key in own], own)
        shards.append(
            ShardView(
                artifacts=run,
                manifest=_manifest(name, len(every), digest),
                coverage=coverage,
                keys=array("q", own),
                rows=selected,
                rewards=array("d"),
                state_sha256=_state_digest(selected, run, marks[run.rollouts]),
                marks=marks[run.rollouts],
                # All files are one set, so what has no result belongs to none of them: the first one tells.
                failures={key: found[-1].failure_class for key, found in unsettled.items()} if not shards else {},
                missing=missing if not shards else array("q"),
            )
        )
    return LegacyAgent(name, tuple(shards), coverage, every, digest)


def _selected(places: Sequence[Place], keys: Sequence[int]) -> SelectedRows:
    return SelectedRows(
        keys=array("q", keys),
        offsets=array("q", (place.offset for place in places)),
        lengths=array("q", (place.length for place in places)),
        checksums=array("q", (place.checksum for place in places)),
    )


def _coverage(name: str, agent: _Agent, keys: Sequence[int], retry: RetrySettings) -> Coverage:
    states: Counter[RolloutState] = Counter()
    kinds: Counter[str] = Counter()
    terminally = unfinished = 0
    for key in keys:
        past = _past(agent, key)
        state = state_under(past, retry)
        states[state] += 1
        unfinished += may_dispatch(past, retry)
        if past.state is RolloutState.FAILED:
            last = agent.failures[key][-1]
            kinds[last.kind or last.failure_class] += 1
            terminally += state is RolloutState.FAILED and is_terminal(past, retry)
    rewards = [float(row.reward) for row, _ in agent.results.values() if row.reward is not None and row.mask_sample is not True]
    return Coverage(
        benchmark=name,
        run_id=RUN,
        expected=len(keys),
        states={state: states[state] for state in RolloutState},
        attempts=len(agent.results) + sum(map(len, agent.failures.values())),
        failed_terminally=terminally,
        truncated=sum(row.is_truncated for row, _ in agent.results.values()),
        unfinished=unfinished,
        failures_by_kind=dict(sorted(kinds.items())),
        identity_verified=False,
        **reward_facts(rewards),
    )


def _past(agent: _Agent, key: int) -> Past:
    """A result settles a rollout whatever failed before; without any line it was never begun, as far as anybody knows."""
    failures = agent.failures.get(key, [])
    count = len(failures)
    if key in agent.results:
        row = agent.results[key][0]
        masked = row.mask_sample is True
        scored = RolloutState.UNSCORED if row.reward is None else RolloutState.MEASURED
        return Past(RolloutState.MASKED if masked else scored, count + 1, count + 1, terminal=False)
    if not failures:
        return Past(RolloutState.NEVER_DISPATCHED, 0, 0, terminal=False)
    # Any terminal line ends a rollout there; the last one names the class.
    ended = any(failure.is_terminal for failure in failures)
    return Past(RolloutState.FAILED, count, count, terminal=ended, failure_class=failures[-1].failure_class)


def _manifest(name: str, expected: int, source_digest: str) -> Manifest:
    return Manifest(
        run_id=RUN,
        benchmark=name,
        created_at="",
        expected=expected,
        source_digest=source_digest,
        inventory_digest="",
        config_digest="",
        config={"agent": {"type": name}},
        legacy_import=True,
    )


def _source_digest(agent: _Agent) -> str:
    """Over the questions of all tasks, from the inventories; empty without one."""
    if not agent.questions:
        return ""
    hasher = hashlib.sha256()
    for task, question in sorted({task_of(key): question for key, question in agent.questions.items()}.items()):
        hasher.update(b"%d %d %b\n" % (task, len(question), question))
    return hasher.hexdigest()


def _state_digest(rows: SelectedRows, run: RunArtifacts, marks: dict[Path, FileMark]) -> str:
    hasher = hashlib.sha256()
    for column in (rows.keys, rows.offsets, rows.lengths, rows.checksums):
        hasher.update(column.tobytes())
    for path in (run.failures, run.inventory):
        hasher.update(b"%d\n" % (marks[path].size_bytes if path in marks else -1))
    return hasher.hexdigest()


def _marks(run: RunArtifacts) -> dict[Path, FileMark]:
    return {path: FileMark.of(path) for path in (run.rollouts, run.failures, run.inventory) if path.exists()}

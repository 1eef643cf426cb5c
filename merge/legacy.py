"""Rollouts files of NeMo Gym 0.7.0, which have no manifest and no journal, as inputs of a merge.

All files together are one set: a failure in one is settled by a result in another. Nothing vouches for their identity, so
reports say ``identity_verified: false``; without an inventory nobody knows what was expected, and they say that too.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from collector.artifacts import RunArtifacts
from collector.codes import Past
from collector.coverage import Coverage
from collector.errors import NoTasksError
from collector.manifest import Manifest
from collector.outcomes import RolloutState
from collector.retry import is_terminal, may_dispatch, state_under
from collector.settings import RetrySettings
from merge.coverage import reward_facts
from merge.fan_out import run_tasks
from merge.legacy_agents import Agent, gather_agents
from merge.legacy_rows import FailureRow, LegacyFile, question_in, read_legacy_file
from merge.legacy_tables import Integers, questions_of_tasks
from merge.select import SelectedRows
from merge.shards import FileMark, ShardView

#: What stands where a run of this project has its own id.
RUN: Final = "legacy"
#: Bytes of files below which one process is done before a second one has begun.
_WORTH_IT: Final = 32 << 20


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


def read_legacy(runs: Sequence[RunArtifacts], retry: RetrySettings) -> LegacyInputs:
    """The files of ``runs`` as one set. Memory: about 150 bytes a row, whatever the rows weigh.

    Raises CorruptArtifactError, RefusedError for two different rows of one rollout, NoTasksError without a single row.
    """
    marks = [_marks(run) for run in runs]
    files = list(run_tasks([partial(_read, run) for run in runs], is_worth_it=_bytes_of(marks) >= _WORTH_IT))
    agents = gather_agents(files)
    if not agents:
        raise NoTasksError("there is not a single row.", "Nothing can be aggregated.", runs[0].rollouts)
    without = tuple(file.path for file in files if file.inventory is None)
    inputs = [_Input(run, file, found) for run, file, found in zip(runs, files, marks, strict=True)]
    made = tuple(_made(name, agents[name], inputs, retry) for name in sorted(agents))
    return LegacyInputs(made, without, tuple(note for file in files for note in file.notes))


def _read(run: RunArtifacts) -> LegacyFile:
    return read_legacy_file(run.rollouts, run.failures, run.inventory)


def _bytes_of(marks: Sequence[Mapping[Path, FileMark]]) -> int:
    return sum(mark.size_bytes for found in marks for mark in found.values())


class _Input(NamedTuple):
    """One input: where it is, what it holds, and how to tell that it is still the same."""

    run: RunArtifacts
    file: LegacyFile
    marks: dict[Path, FileMark]


def _made(name: str, agent: Agent, inputs: Sequence[_Input], retry: RetrySettings) -> LegacyAgent:
    results, failed = agent.results, agent.failed_keys
    every = np.union1d(np.union1d(agent.questions.keys, results.keys), failed)
    coverage = _coverage(name, agent, every, retry)
    digest = _source_digest(agent, [given.file for given in inputs])
    settled = set(np.intersect1d(failed, results.keys).tolist())
    unsettled = {key: found[-1].failure_class for key, found in agent.failures.items() if key not in settled}
    missing = np.setdiff1d(np.setdiff1d(every, results.keys), failed)
    shards: list[ShardView] = []
    for number, (run, _, marks) in enumerate(inputs):
        own = np.flatnonzero(results.files == number)
        selected = SelectedRows(*(_array(c[own]) for c in (results.keys, results.offsets, results.lengths, results.checksums)))
        shards.append(
            ShardView(
                artifacts=run,
                manifest=_manifest(name, len(every), digest),
                coverage=coverage,
                keys=selected.keys,
                rows=selected,
                rewards=array("d"),
                state_sha256=_state_digest(selected, run, marks),
                marks=marks,
                # All files are one set, so what has no result belongs to none of them: the first one tells.
                failures=unsettled if not shards else {},
                missing=_array(missing) if not shards else array("q"),
            )
        )
    return LegacyAgent(name, tuple(shards), coverage, _array(every), digest)


def _array(column: Integers) -> array[int]:
    return array("q", column.astype(np.int64).tobytes())


def _coverage(name: str, agent: Agent, keys: Integers, retry: RetrySettings) -> Coverage:
    results = agent.results
    states: Counter[RolloutState] = Counter()
    kinds: Counter[str] = Counter()
    terminally = unfinished = 0
    has_reward = ~np.isnan(results.rewards)
    # A result settles a rollout whatever failed before.
    states[RolloutState.MASKED] = int(np.count_nonzero(results.masked))
    states[RolloutState.MEASURED] = int(np.count_nonzero(~results.masked & has_reward))
    states[RolloutState.UNSCORED] = int(np.count_nonzero(~results.masked & ~has_reward))
    open_failures = np.setdiff1d(agent.failed_keys, results.keys)
    for key in open_failures.tolist():
        past = _past(agent.failures[key])
        state = state_under(past, retry)
        states[state] += 1
        unfinished += may_dispatch(past, retry)
        last = agent.failures[key][-1]
        kinds[last.kind or last.failure_class] += 1
        terminally += state is RolloutState.FAILED and is_terminal(past, retry)
    # Without any line it was never begun, as far as anybody knows.
    never = len(keys) - len(results.keys) - len(open_failures)
    states[RolloutState.NEVER_DISPATCHED] += never
    unfinished += never * may_dispatch(Past(RolloutState.NEVER_DISPATCHED, 0, 0, terminal=False), retry)
    rewards = results.rewards[~results.masked & has_reward]
    return Coverage(
        benchmark=name,
        run_id=RUN,
        expected=len(keys),
        states={state: states[state] for state in RolloutState},
        attempts=len(results.keys) + sum(map(len, agent.failures.values())),
        failed_terminally=terminally,
        truncated=int(np.count_nonzero(results.truncated)),
        unfinished=unfinished,
        failures_by_kind=dict(sorted(kinds.items())),
        identity_verified=False,
        **reward_facts(array("d", rewards.tobytes())),
    )


def _past(failures: Sequence[FailureRow]) -> Past:
    """Of a rollout without a result: any terminal line ends it there; the last one names the class."""
    ended = any(failure.is_terminal for failure in failures)
    count = len(failures)
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


def _source_digest(agent: Agent, files: Sequence[LegacyFile]) -> str:
    """Over the questions of all tasks, from the inventories; empty without one."""
    if not len(agent.questions.keys):
        return ""
    hasher = hashlib.sha256()
    for task, line in questions_of_tasks(files, agent.questions):
        question = question_in(line)
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

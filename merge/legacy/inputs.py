"""Rollouts files of NeMo Gym 0.7.0, which have no manifest and no journal, as inputs of a merge.

All files together are one set: a failure in one is settled by a result in another. Nothing vouches for their identity, so
reports say ``identity_verified: false``; without an inventory nobody knows what was expected, and they say that too.
"""

from __future__ import annotations

import hashlib
import itertools
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from collector.artifacts import RunArtifacts
from collector.errors import NoTasksError
from collector.formats.manifest import Manifest
from collector.outcomes import RolloutState
from collector.settings import RetrySettings
from collector.state.codes import Past
from collector.state.coverage import Coverage
from collector.state.retry import is_terminal, may_dispatch, state_under
from collector.state.scores import Scores
from merge.coverage import reward_facts
from merge.inputs.select import SelectedRows
from merge.inputs.shards import ShardView
from merge.legacy.agents import Agent, gather_agents
from merge.legacy.files import LegacyFile, read_legacy_files
from merge.legacy.rows import FailureRow
from merge.legacy.tables import is_in, questions_in, union
from merge.metrics.array_types import Integers

#: What stands where a run of this project has its own id.
RUN: Final = "legacy"


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
    """The files of ``runs`` as one set. Memory: less than 400 bytes a row, whatever the rows weigh.

    Raises CorruptArtifactError, RefusedError for two different rows of one rollout, NoTasksError without a single row.
    """
    files = [LegacyFile.at(run) for run in runs]
    rows = read_legacy_files(files)
    agents = gather_agents(rows)
    if not agents:
        raise NoTasksError("there is not a single row.", "Nothing can be aggregated.", runs[0].rollouts)
    without = tuple(file.run.rollouts for file in files if not file.has_inventory)
    return LegacyInputs(tuple(_made(agent, files, retry) for agent in agents), without, rows.notes)


def _made(agent: Agent, files: Sequence[LegacyFile], retry: RetrySettings) -> LegacyAgent:
    every = union(agent.asked.keys, agent.results.keys, agent.failed_keys)
    without_result = every[~is_in(every, agent.results.keys)]
    is_failed = is_in(without_result, agent.failed_keys)
    unsettled = without_result[is_failed].tolist()
    coverage = _coverage(agent, len(every), unsettled, retry)
    digest = _source_digest(agent, files)
    manifest = _manifest(agent.name, len(every), digest)
    # All files are one set, so what has no result belongs to none of them: the first one tells.
    failures = {key: agent.failures[key][-1].failure_class for key in unsettled}
    missing = _array(without_result[~is_failed])
    shards: list[ShardView] = []
    for file, selected in zip(files, _rows_by_file(agent, len(files)), strict=True):
        shards.append(
            ShardView(
                artifacts=file.run,
                manifest=manifest,
                coverage=coverage,
                keys=selected.keys,
                rows=selected,
                scores=Scores(),
                state_sha256=_state_digest(selected, file),
                marks=file.marks,
                failures=failures,
                missing=missing,
            )
        )
        failures, missing = {}, array("q")
    return LegacyAgent(agent.name, tuple(shards), coverage, _array(every), digest)


def _rows_by_file(agent: Agent, files: int) -> Iterator[SelectedRows]:
    results = agent.results
    order = np.argsort(results.files, kind="stable")
    bounds = np.searchsorted(results.files[order], np.arange(files + 1)).tolist()
    for begin, end in itertools.pairwise(bounds):
        own = results.take(order[begin:end])
        yield SelectedRows(*map(_array, (own.keys, own.offsets, own.lengths, own.checksums)))


def _array(column: Integers) -> array[int]:
    return array("q", column.tobytes())


def _coverage(agent: Agent, expected: int, unsettled: Sequence[int], retry: RetrySettings) -> Coverage:
    """The counts over ``expected`` rollouts, of which those with keys in ``unsettled`` failed and have no result."""
    results = agent.results
    states: Counter[RolloutState] = Counter()
    kinds: Counter[str] = Counter()
    terminally = unfinished = 0
    has_reward = ~np.isnan(results.rewards)
    # A result settles a rollout whatever failed before.
    states[RolloutState.MASKED] = int(np.count_nonzero(results.masked))
    states[RolloutState.MEASURED] = int(np.count_nonzero(~results.masked & has_reward))
    states[RolloutState.UNSCORED] = int(np.count_nonzero(~results.masked & ~has_reward))
    for failures in map(agent.failures.__getitem__, unsettled):
        past = _past(failures)
        state = state_under(past, retry)
        states[state] += 1
        unfinished += may_dispatch(past, retry)
        kinds[failures[-1].kind or failures[-1].failure_class] += 1
        terminally += state is RolloutState.FAILED and is_terminal(past, retry)
    # Without any line it was never begun, as far as anybody knows.
    never = expected - len(results.keys) - len(unsettled)
    states[RolloutState.NEVER_DISPATCHED] += never
    unfinished += never * may_dispatch(Past(RolloutState.NEVER_DISPATCHED, 0, 0, terminal=False), retry)
    rewards = results.rewards[~results.masked & has_reward]
    return Coverage(
        benchmark=agent.name,
        run_id=RUN,
        expected=expected,
        states={state: states[state] for state in RolloutState},
        attempts=len(results.keys) + sum(map(len, agent.failures.values())),
        failed_terminally=terminally,
        truncated=int(np.count_nonzero(results.truncated)),
        unfinished=unfinished,
        failures_by_kind=dict(sorted(kinds.items())),
        identity_verified=False,
        **reward_facts(Scores.of(array("d", rewards.tobytes()))),
    )


def _past(failures: Sequence[FailureRow]) -> Past:
    """The past of a rollout without a result: any terminal line ended it; the last line names the class."""
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
    if not len(agent.asked.keys):
        return ""
    hasher = hashlib.sha256()
    for task, question in questions_in(files, agent.asked.rows):
        hasher.update(b"%d %d %b\n" % (task, len(question), question))
    return hasher.hexdigest()


def _state_digest(rows: SelectedRows, file: LegacyFile) -> str:
    hasher = hashlib.sha256()
    for column in (rows.keys, rows.offsets, rows.lengths, rows.checksums):
        hasher.update(column.tobytes())
    for path in (file.run.failures, file.run.inventory):
        hasher.update(b"%d\n" % (file.marks[path].size_bytes if path in file.marks else -1))
    return hasher.hexdigest()

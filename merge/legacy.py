"""Rollouts files of NeMo Gym 0.7.0, which have no manifest and no journal, as inputs of a merge.

All files together are one set: a failure in one is settled by a result in another. Nothing vouches for their identity, so
reports say ``identity_verified: false``; without an inventory nobody knows what was expected, and they say that too.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from collector.artifacts import RunArtifacts
from collector.codes import Past
from collector.coverage import Coverage
from collector.errors import NoTasksError
from collector.manifest import Manifest
from collector.outcomes import RolloutState
from collector.retry import is_terminal, may_dispatch, state_under
from collector.settings import RetrySettings
from merge.coverage import reward_facts
from merge.legacy_agents import Agent, gather_agents
from merge.legacy_rows import Place, read_legacy_file
from merge.select import SelectedRows, task_of
from merge.shards import FileMark, ShardView

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
    """The files of ``runs`` as one set.

    Raises CorruptArtifactError, RefusedError for two different rows of one rollout, NoTasksError without a single row.
    """
    marks = {run.rollouts: _marks(run) for run in runs}
    files = [read_legacy_file(run.rollouts, run.failures, run.inventory) for run in runs]
    agents = gather_agents(files)
    if not agents:
        raise NoTasksError("there is not a single row.", "Nothing can be aggregated.", runs[0].rollouts)
    without = tuple(file.path for file in files if file.inventory is None)
    made = tuple(_made(name, agents[name], runs, marks, retry) for name in sorted(agents))
    return LegacyInputs(made, without, tuple(note for file in files for note in file.notes))


def _made(
    name: str, agent: Agent, runs: Sequence[RunArtifacts], marks: dict[Path, dict[Path, FileMark]], retry: RetrySettings
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


def _coverage(name: str, agent: Agent, keys: Sequence[int], retry: RetrySettings) -> Coverage:
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


def _past(agent: Agent, key: int) -> Past:
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


def _source_digest(agent: Agent) -> str:
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

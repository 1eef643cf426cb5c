"""Whose rows are whose, in files of NeMo Gym: by agent, and by environment server where one agent stands behind several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from collector.errors import RefusedError
from merge.legacy_rows import NO_NAME, FailureRow, InventoryColumns, LegacyFile, Names
from merge.legacy_tables import Integers, Questions, Results, check_same, inventory_rows, questions_of, result_rows, results_of
from merge.select import repeat_of, task_of

#: The agent of rows that name none.
_UNNAMED: Final = "agent"


@dataclass(slots=True)
class Agent:
    """What the files hold of one agent. Without inventories there are no questions."""

    results: Results
    questions: Questions
    failures: dict[int, list[FailureRow]] = field(default_factory=dict[int, list[FailureRow]])

    @property
    def failed_keys(self) -> Integers:
        """The rollouts with a failure, rising."""
        return np.sort(np.fromiter(self.failures, dtype=np.int64, count=len(self.failures)))


def gather_agents(files: Sequence[LegacyFile]) -> dict[str, Agent]:
    """The rows of ``files``, which are one set, by the name that they count under.

    Raises RefusedError for two different rows of one rollout, and for a row in no inventory where every file has one.
    """
    owners = _Owners(files)
    rows, asked = result_rows(files), inventory_rows(files)
    check_same(files, owners.of_results, rows)
    failures: dict[int, dict[int, list[FailureRow]]] = {}
    for file, found in zip(files, owners.of_failures, strict=True):
        for row, owner in zip(file.failures, found.tolist(), strict=True):
            failures.setdefault(owner, {}).setdefault(row.key, []).append(row)
    is_known = all(file.inventory is not None for file in files)
    agents: dict[str, Agent] = {}
    every = {*np.unique(owners.of_results).tolist(), *np.unique(owners.of_questions).tolist(), *failures}
    for owner in sorted(every):
        results = results_of(rows, np.flatnonzero(owners.of_results == owner))
        questions = questions_of(asked, np.flatnonzero(owners.of_questions == owner))
        agents[owners.names.all[owner]] = agent = Agent(results, questions, failures.get(owner, {}))
        _check_foreign(owners.names.all[owner], agent, files, is_known=is_known)
    return agents


class _Owners:
    """Under which name each row counts, by number."""

    def __init__(self, files: Sequence[LegacyFile]) -> None:
        self.names = Names()
        self._servers: dict[int, set[str]] = {}
        self._of_file: dict[tuple[int, int], set[str]] = {}
        agents: list[list[Integers]] = []
        servers: list[list[Sequence[int]]] = []
        for file in files:
            planned, asked, failures = _Planned(file, self.names), file.inventory or InventoryColumns(), file.failures
            failed_agents = [file.names.number(row.agent) for row in failures]
            servers.append(
                [file.results.servers, [file.names.number(row.server) for row in failures], [NO_NAME] * len(asked.keys)]
            )
            agents.append([
                planned.agents(file.results.keys, file.results.agents),
                planned.agents([row.key for row in failures], failed_agents),
                planned.agents(asked.keys, asked.agents),
            ])  # fmt: skip
        for number, file in enumerate(files):
            for of_rows, of_servers in zip(agents[number], servers[number], strict=True):
                self._note_servers(number, file, of_rows, np.asarray(of_servers, dtype=np.int64))
        owners = [
            [self._owners(number, file, *pair) for pair in zip(agents[number], servers[number], strict=True)]
            for number, file in enumerate(files)
        ]
        self.of_results = np.concatenate([found[0] for found in owners])
        #: File by file.
        self.of_failures = [found[1] for found in owners]
        self.of_questions = np.concatenate([found[2] for found in owners])

    def _note_servers(self, number: int, file: LegacyFile, agents: Integers, servers: Integers) -> None:
        for pair in np.unique(agents << 32 | servers + 1).tolist():
            agent, server = pair >> 32, (pair & 0xFFFFFFFF) - 1
            if server != NO_NAME:
                self._servers.setdefault(agent, set()).add(file.names.all[server])
                self._of_file.setdefault((number, agent), set()).add(file.names.all[server])

    def _owners(self, number: int, file: LegacyFile, agents: Integers, servers: Sequence[int]) -> Integers:
        pairs = agents << 32 | np.asarray(servers, dtype=np.int64) + 1
        distinct, which = np.unique(pairs, return_inverse=True)
        owners = [self._owner(number, file, pair >> 32, (pair & 0xFFFFFFFF) - 1) for pair in distinct.tolist()]
        return np.asarray(owners, dtype=np.int64)[which]

    def _owner(self, number: int, file: LegacyFile, agent: int, server: int) -> int:
        if len(self._servers.get(agent, ())) < 2:
            return agent
        own = None if server == NO_NAME else file.names.all[server]
        found = self._of_file.get((number, agent), set())
        name = own or (next(iter(found)) if len(found) == 1 else self.names.all[agent])
        return self.names.number(name)


class _Planned:
    """Who answered the rows of one file: the agent that a row names, or the one that the inventory has for its rollout."""

    def __init__(self, file: LegacyFile, names: Names) -> None:
        self._file = file
        self._unnamed = names.number(_UNNAMED)
        self._numbers = names
        self._of_key: dict[int, set[int]] | None = None

    def agents(self, keys: Sequence[int], agents: Sequence[int]) -> Integers:
        """The number of the agent of each row."""
        # Behind the last one, where -1 looks.
        known = np.asarray([*map(self._numbers.number, self._file.names.all), self._unnamed], dtype=np.int64)
        given = np.asarray(agents, dtype=np.int64)
        found = known[given]
        for index in np.flatnonzero(given == NO_NAME).tolist():
            planned = self._planned().get(keys[index], set())
            if len(planned) == 1:
                found[index] = next(iter(planned))
        return found

    def _planned(self) -> dict[int, set[int]]:
        if self._of_key is None:
            self._of_key = {}
            asked = self._file.inventory or InventoryColumns()
            for key, agent in zip(asked.keys, asked.agents, strict=True):
                name = self._unnamed if agent == NO_NAME else self._numbers.number(self._file.names.all[agent])
                self._of_key.setdefault(key, set()).add(name)
        return self._of_key


def _check_foreign(name: str, agent: Agent, files: Sequence[LegacyFile], *, is_known: bool) -> None:
    if not is_known:
        return
    foreign = np.setdiff1d(np.union1d(agent.results.keys, agent.failed_keys), agent.questions.keys)
    if len(foreign):
        key = int(foreign[0])
        place = int(np.searchsorted(agent.results.keys, key))
        has_row = place < len(agent.results.keys) and int(agent.results.keys[place]) == key
        where: Path | str = files[int(agent.results.files[place])].path if has_row else name
        raise RefusedError(
            f"rollout {task_of(key)}-{repeat_of(key)} is in no inventory.", "The files are not of one run.", where
        )

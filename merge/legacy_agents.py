"""Whose rows are whose, in files of NeMo Gym: by agent, and by environment server where one agent stands behind several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from collector.errors import RefusedError
from merge.legacy_rows import FailureRow, InventoryRow, LegacyFile, Place, ResultRow
from merge.select import repeat_of, task_of

#: The agent of rows that name none.
_UNNAMED: Final = "agent"


@dataclass(slots=True)
class Agent:
    """What the files hold of one agent, by the keys of its rollouts. Without inventories there are no questions."""

    results: dict[int, tuple[ResultRow, Place]] = field(default_factory=dict[int, tuple[ResultRow, Place]])
    failures: dict[int, list[FailureRow]] = field(default_factory=dict[int, list[FailureRow]])
    questions: dict[int, bytes] = field(default_factory=dict[int, bytes])


def gather_agents(files: Sequence[LegacyFile]) -> dict[str, Agent]:
    """The rows of ``files``, which are one set, by the name that they count under.

    Raises RefusedError for two different rows of one rollout, and for a row in no inventory where every file has one.
    """
    names = _Names(files)
    agents: dict[str, Agent] = {}
    for file in files:
        _take(file, names, agents)
    is_known = all(file.inventory is not None for file in files)
    for name, agent in agents.items():
        _check_foreign(name, agent, is_known=is_known)
    return agents


class _Names:
    """Under which name a row counts."""

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


def _take(file: LegacyFile, names: _Names, agents: dict[str, Agent]) -> None:
    for row, place in file.results:
        agent = agents.setdefault(names.of(file, row), Agent())
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
        agent = agents.setdefault(names.of(file, failure), Agent())
        agent.failures.setdefault(failure.key, []).append(failure)
    for row in file.inventory or []:
        agents.setdefault(names.of(file, row), Agent()).questions[row.key] = row.question


def _check_foreign(name: str, agent: Agent, *, is_known: bool) -> None:
    foreign = sorted({*agent.results, *agent.failures} - set(agent.questions)) if is_known else []
    if foreign:
        where = agent.results[foreign[0]][1].path if foreign[0] in agent.results else name
        rollout = f"{task_of(foreign[0])}-{repeat_of(foreign[0])}"
        raise RefusedError(f"rollout {rollout} is in no inventory.", "The files are not of one run.", where)

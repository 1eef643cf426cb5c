"""Rows of NeMo Gym's files by the name that they count under."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collector.errors import RefusedError
from collector.formats.rollout_key import counted_id
from merge.legacy.columns import Results
from merge.legacy.files import LegacyRows
from merge.legacy.owners import owners_of
from merge.legacy.rows import FailureRow
from merge.legacy.tables import Asked, asked_of, first_rows, is_in, union
from merge.metrics.array_types import Integers


@dataclass(frozen=True, slots=True)
class Agent:
    """What the files hold of one agent, all by rising key. Without inventories nothing is asked."""

    name: str
    #: One for each rollout.
    results: Results
    asked: Asked
    failures: dict[int, list[FailureRow]]

    @property
    def failed_keys(self) -> Integers:
        """The rollouts with a failure."""
        return np.array(list(self.failures), dtype=np.int64)


def gather_agents(rows: LegacyRows) -> list[Agent]:
    """The agents by their names.

    Raises RefusedError for two different rows of one rollout, and for a row in no inventory where every file has one.
    """
    owners = owners_of(rows)
    results, of_results = first_rows(rows, owners.results)
    failures: dict[int, dict[int, list[FailureRow]]] = {}
    for (_, row), owner in zip(rows.failures, owners.failures.tolist(), strict=True):
        failures.setdefault(owner, {}).setdefault(row.key, []).append(row)
    every = {*of_results.tolist(), *np.unique(owners.questions).tolist(), *failures}
    agents: list[Agent] = []
    for owner in sorted(every, key=rows.names.all.__getitem__):
        own = slice(*(int(np.searchsorted(of_results, owner, side=side)) for side in ("left", "right")))
        asked = asked_of(rows.questions.take(np.flatnonzero(owners.questions == owner)))
        failed = dict(sorted(failures.get(owner, {}).items()))
        agents.append(Agent(rows.names.all[owner], results.take(own), asked, failed))
    if all(file.has_inventory for file in rows.files):
        for agent in agents:
            _check_asked(agent, rows)
    return agents


def _check_asked(agent: Agent, rows: LegacyRows) -> None:
    answered = union(agent.results.keys, agent.failed_keys)
    foreign = answered[~is_in(answered, agent.asked.keys)]
    if len(foreign):
        key = int(foreign[0])
        of_result = agent.results.files[agent.results.keys == key].tolist()
        where: Path | str = rows.files[of_result[0]].run.rollouts if of_result else agent.name
        raise RefusedError(f"rollout {counted_id(key)} is in no inventory.", "The files are not of one run.", where)

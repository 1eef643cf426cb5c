"""Under which name rows of NeMo Gym's files count: their agent's, or their environment server's where an agent has several."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

import numpy as np

from merge.legacy.columns import NO_NAME, Names, Questions
from merge.legacy.files import LegacyRows
from merge.metrics.array_types import Integers

#: The agent of rows that name none.
_UNNAMED: Final = "agent"


class Owners(NamedTuple):
    """The number of the name that each row counts under."""

    results: Integers
    failures: Integers
    questions: Integers


class _Signed(NamedTuple):
    """Rows by what tells their owner: the number of the input, the names of agent and server, and the rollout's key."""

    files: Integers
    agents: Integers
    servers: Integers
    keys: Integers


class _Signature(NamedTuple):
    """What rows of one owner have in common."""

    file: int
    agent: int
    server: int


def owners_of(rows: LegacyRows) -> Owners:
    """The owner of each row. An agent that several servers stand for has the rows whose server nobody can tell."""
    distinct = [_distinct(group, len(rows.names.all)) for group in _signed(rows)]
    owners = _owners({signature for signatures, _ in distinct for signature in signatures}, rows.names)
    return Owners(*(np.array([owners[found] for found in signatures], dtype=np.int64)[which] for signatures, which in distinct))


def _distinct(rows: _Signed, names: int) -> tuple[list[_Signature], Integers]:
    """The signatures that occur, of which there are few, and for each of ``rows`` the place of its own among them."""
    # NO_NAME is -1, and equal numbers mean equal signatures.
    numbers = (rows.files * names + rows.agents) * (names + 1) + rows.servers + 1
    _, first, which = np.unique(numbers, return_index=True, return_inverse=True)
    found = zip(*(column[first].tolist() for column in (rows.files, rows.agents, rows.servers)), strict=True)
    return [_Signature(*signature) for signature in found], which


def _owners(signatures: Collection[_Signature], names: Names) -> dict[_Signature, int]:
    of_agent: dict[int, set[int]] = {}
    of_file: dict[tuple[int, int], set[int]] = {}
    for file, agent, server in signatures:
        if server != NO_NAME:
            of_agent.setdefault(agent, set()).add(server)
            of_file.setdefault((file, agent), set()).add(server)

    def owner(file: int, agent: int, server: int) -> int:
        if len(of_agent.get(agent, ())) < 2:
            return agent
        if server != NO_NAME and names.all[server]:
            return server
        # A row without one is of the server that the other rows of its file name.
        near = of_file.get((file, agent), set())
        return next(iter(near)) if len(near) == 1 else agent

    return {signature: owner(*signature) for signature in signatures}


def _signed(rows: LegacyRows) -> tuple[_Signed, _Signed, _Signed]:
    """Results, failures and inventory rows, each with an agent."""
    unnamed = rows.names.number(_UNNAMED)
    results, questions, names = rows.results, rows.questions, rows.names
    asked = questions._replace(agents=np.where(questions.agents == NO_NAME, unnamed, questions.agents))
    failed = [(file, names.number(row.agent), names.number(row.server), row.key) for file, row in rows.failures]
    failures = _Signed(*np.array(failed, dtype=np.int64).reshape(-1, 4).T)
    answered = _Signed(results.files, results.agents, results.servers, results.keys)
    return (
        answered._replace(agents=_planned(answered, asked, unnamed)),
        failures._replace(agents=_planned(failures, asked, unnamed)),
        _Signed(asked.files, asked.agents, np.full(len(asked.keys), NO_NAME), asked.keys),
    )


def _planned(rows: _Signed, asked: Questions, unnamed: int) -> Integers:
    """The agent of each of ``rows``: the one it names, or the only one that the inventory of its file has for its rollout."""
    agents = rows.agents.copy()
    nameless = np.flatnonzero(agents == NO_NAME)
    for file in np.unique(rows.files[nameless]).tolist():
        own = nameless[rows.files[nameless] == file]
        agents[own] = _only_agents(rows.keys[own], asked.take(np.flatnonzero(asked.files == file)), unnamed)
    return agents


def _only_agents(keys: Integers, asked: Questions, unnamed: int) -> Integers:
    """The agent that ``asked`` names for each of ``keys``; ``unnamed`` where it names none, or more than one."""
    order = np.lexsort((asked.agents, asked.keys))
    known, agents = asked.keys[order], asked.agents[order]
    is_new = (np.diff(known, prepend=-1) != 0) | (np.diff(agents, prepend=NO_NAME) != 0)
    known, agents = known[is_new], agents[is_new]
    begins, ends = (np.searchsorted(known, keys, side=side) for side in ("left", "right"))
    found = np.full(len(keys), unnamed)
    is_only = ends - begins == 1
    found[is_only] = agents[begins[is_only]]
    return found

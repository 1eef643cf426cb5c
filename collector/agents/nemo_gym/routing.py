"""Which server runs a row, and which agents its copies go to. Pure; the order of rules is NeMo Gym 0.7.0's.

``agent_map`` of the row's agent or source, its ``_default``, the row's own ``agent_ref``, its ``task_source``. A materialized
task (``task_id`` and ``task_input``) goes where its taskset's route leads, whatever the mode.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from collector.agents.nemo_gym.servers import AGENTS, ENVIRONMENTS, Server, Servers, agents_of, attributed_agent, reference_name
from collector.agents.nemo_gym.settings import DEFAULT_KEY, NemoGymSettings
from collector.errors import ConfigError
from collector.formats import rows


@dataclass(frozen=True, slots=True)
class Routed:
    """Where a row of the dataset goes: to a server that runs it whole, or once to each of ``agents``."""

    #: What the row routes by as it stands in the dataset; a key of maps.
    basis: str
    server: str | None = None
    agents: tuple[str, ...] = ()
    #: The agent that ``agent_map`` or the source leads to: the row's ``agent_ref`` from then on, also when it named the same.
    named: str | None = None

    @property
    def copies(self) -> tuple[str | None, ...]:
        """One entry for each copy that is made of the row: its agent, or None."""
        return self.agents or (None,)


def is_materialized_task(row: Mapping[str, Any]) -> bool:
    """Whether the row is a task of a taskset rather than a flat row."""
    return isinstance(row.get("task_id"), Mapping) and "task_input" in row


def route(row: Mapping[str, Any], settings: NemoGymSettings, servers: Servers | None) -> Routed:
    """Where ``row`` goes. ``servers`` are needed for rows that name their source only.

    Raises ValueError for a row that says too little, ConfigError for one that no server of the configuration runs.
    """
    source, agent = row.get("task_source"), _agent_of(row)
    server = _server_by_mode(row, settings)
    if server is not None:
        taskset = row["task_id"]["taskset"] if is_materialized_task(row) else None
        return Routed(str(taskset or source or server), server=server)
    basis = agent or source
    mapped = next((settings.routes[key] for key in (agent, source, DEFAULT_KEY) if key in settings.routes), None)
    target = mapped or agent
    if basis is not None and basis in settings.fan_out:
        return Routed(basis, agents=tuple(settings.fan_out[basis]), named=mapped)
    if target is None and source is not None:
        if servers is None:
            raise AssertionError("a row that names its source needs the servers' configuration")
        # A map of repeats knows such a row by its source only.
        return Routed(source, named=servers.agent_of_source(source))
    if target is None:
        raise ValueError("the row names neither agent_ref nor task_source: give --agent, or agent.agent_map._default")
    return Routed(basis or target, agents=(target,), named=mapped)


def target_of(row: Mapping[str, Any], servers: Servers) -> Server:
    """The server that a prepared row is posted to. Raises ConfigError when there is none, or none to choose."""
    name = row.get(rows.ENVIRONMENT_SERVER)
    if isinstance(name, str):
        return servers.get(name, kind=ENVIRONMENTS, whose="environment server")
    return servers.fronting(_agent_of(row) or "")


def check_pairing(row: Mapping[str, Any], server: Server, servers: Servers) -> str | None:
    """The agent whose results those of ``server`` are. Raises ConfigError when ``row`` names another agent or source."""
    fronted, agent, source = agents_of(server), _agent_of(row), row.get("task_source")
    if agent is not None and fronted and agent not in fronted:
        what = f"a row names agent {agent!r}, and environment server {server.name!r} fronts {', '.join(fronted)}."
        raise ConfigError(what, "", servers.origin)
    resources = reference_name(server.settings.get("resources_server"))
    if source is not None and resources is not None and source != resources:
        what = f"a row's task_source is {source!r}, and environment server {server.name!r} uses {resources!r}."
        raise ConfigError(what, "", servers.origin)
    attributed = attributed_agent(server)
    if attributed is not None:
        servers.get(attributed, kind=AGENTS, whose="agent")
    return attributed


def repeats_of(copy: str | None, routed: Routed, repeats: int | Mapping[str, int]) -> int:
    """How often a copy of a row runs. Raises ValueError when a map has neither an entry for it nor a default."""
    if isinstance(repeats, int):
        return repeats
    keys = [key for key in dict.fromkeys((copy, routed.basis)) if key is not None]
    for key in (*keys, DEFAULT_KEY):
        if key in repeats:
            return repeats[key]
    raise ValueError(f"num_repeats has no entry for {' or '.join(keys)}, and no {DEFAULT_KEY}")


def unused_repeats(repeats: int | Mapping[str, int], seen: Iterable[str]) -> list[str]:
    """Keys of a map of repeats that no row went by."""
    return [] if isinstance(repeats, int) else sorted(repeats.keys() - set(seen) - {DEFAULT_KEY})


def _server_by_mode(row: Mapping[str, Any], settings: NemoGymSettings) -> str | None:
    if is_materialized_task(row):
        taskset = row["task_id"].get("taskset")
        if not isinstance(taskset, str) or not taskset or not isinstance(row["task_id"].get("task_id"), str):
            raise ValueError("task_id must have a taskset and a task_id")
        if taskset not in settings.environment_server_routes:
            raise ValueError(f"no route for taskset {taskset!r}: add it to environment_server_routes")
        return settings.environment_server_routes[taskset]
    if settings.environment_routing_mode == "taskset":
        raise ValueError("environment_routing_mode taskset takes rows with task_id and task_input only")
    return settings.environment_server_name if settings.environment_routing_mode == "legacy" else None


def _agent_of(row: Mapping[str, Any]) -> str | None:
    return reference_name(row.get("agent_ref"))

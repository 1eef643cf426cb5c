"""What the merged configuration of a NeMo Gym says of its servers: which there are, where they answer, and who runs a row.

Pure. The rules are NeMo Gym 0.7.0's; a configuration without environment servers is that of an older one, whose agents
answer ``/run`` themselves.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from collector.agents.nemo_gym.references import MissingReferenceError, resolved
from collector.errors import ConfigError

ENVIRONMENTS: Final = "environment_servers"
AGENTS: Final = "responses_api_agents"
RESOURCES: Final = "resources_servers"
MODELS: Final = "responses_api_models"
KINDS: Final = (ENVIRONMENTS, AGENTS, RESOURCES, MODELS)


@dataclass(frozen=True, slots=True)
class Server:
    """One server block: ``<name>: {<kind>: {<implementation>: settings}}``."""

    name: str
    kind: str
    implementation: str
    settings: Mapping[str, Any]


class Servers:
    """The servers of one configuration, by name. ``origin`` says in messages where it came from."""

    def __init__(self, config: Mapping[str, Any], *, origin: str) -> None:
        self.config = config
        self.origin = origin

    @cached_property
    def by_name(self) -> dict[str, Server]:
        """Every block that is a server."""
        return {server.name: server for server in _servers_in(self.config)}

    @cached_property
    def _fronting(self) -> dict[str, list[str]]:
        """Each agent with the environment servers that front it."""
        found: dict[str, list[str]] = {}
        for server in self.of_kind(ENVIRONMENTS):
            for agent in agents_of(server):
                found.setdefault(agent, []).append(server.name)
        return found

    def of_kind(self, kind: str) -> Iterator[Server]:
        """The servers of one kind."""
        return (server for server in self.by_name.values() if server.kind == kind)

    def get(self, name: str, *, kind: str | None = None, whose: str = "") -> Server:
        """The server called ``name``. Raises ConfigError with the nearest names when there is none of ``kind``."""
        server = self.by_name.get(name)
        if server is None or (kind is not None and server.kind != kind):
            what = f"a {server.kind.removesuffix('s')} and not one of {kind}" if server else "not in the running configuration"
            known = sorted(found.name for found in (self.of_kind(kind) if kind else self.by_name.values()))
            raise ConfigError(f"{whose or 'server'} {name!r} is {what}.", _near(name, known), self.origin)
        return server

    def fronting(self, agent: str) -> Server:
        """The server that ``/run`` of rows of ``agent`` is posted to: its environment server, else the agent itself.

        Raises ConfigError when there is no such agent, or when several environment servers front it.
        """
        self.get(agent, kind=AGENTS, whose="agent")
        servers = self._fronting.get(agent, [])
        if len(servers) == 1:
            return self.by_name[servers[0]]
        if servers:
            raise ConfigError(
                f"agent {agent!r} is fronted by several environment servers: {', '.join(sorted(servers))}.",
                "Rows that route by agent cannot choose: set environment_routing_mode legacy and environment_server_name.",
                self.origin,
            )
        return self.by_name[agent]

    def agent_of_source(self, source: str) -> str:
        """The agent that runs the rows of the datasets that ``source`` declares. Raises ConfigError with the reason."""
        server = self.by_name.get(source)
        if server is None or server.kind not in {AGENTS, RESOURCES}:
            self.get(source, whose="task_source")
            raise ConfigError(f"task_source {source!r} is neither an agent nor a resources server.", "", self.origin)
        pins = _pins_of(server)
        if len(pins) > 1:
            fix = f"Choose one: agent_map={{{source}: AGENT}}."
            raise ConfigError(f"the datasets of {source!r} name several agents: {', '.join(pins)}.", fix, self.origin)
        if server.kind == AGENTS:
            if pins and pins[0] != source:
                raise ConfigError(f"agent {source!r} declares a dataset for agent {pins[0]!r}.", "", self.origin)
            return source
        return self._agent_of_resources(source, pins)

    def _agent_of_resources(self, source: str, pins: list[str]) -> str:
        users = [
            agent.name for agent in self.of_kind(AGENTS) if reference_name(agent.settings.get("resources_server")) == source
        ]
        if pins:
            if pins[0] not in users:
                what = f"a dataset of {source!r} names agent {pins[0]!r}, which does not use it."
                raise ConfigError(what, f"Agents that do: {', '.join(users) or 'none'}.", self.origin)
            return pins[0]
        if len(users) != 1:
            what = f"{len(users)} agents use resources server {source!r}{': ' if users else ''}{', '.join(sorted(users))}."
            raise ConfigError(what, f"Name one: agent_map={{{source}: AGENT}}.", self.origin)
        return users[0]

    def check_supported(self, agent: str, source: str | None) -> None:
        """Raise ConfigError when the verifier of ``agent``'s rows, or of ``source``, takes no agent of its type."""
        server = self.by_name[agent]
        for name in (source, reference_name(server.settings.get("resources_server"))):
            verifier = self.by_name.get(name or "")
            allowed = verifier.settings.get("allowed_agents") if verifier and verifier.kind == RESOURCES else None
            types = [allowed] if isinstance(allowed, str) else allowed
            if types and isinstance(types, list) and server.implementation not in types:
                what = f"resources server {name!r} takes agents of type {', '.join(map(str, types))}, and {agent!r} is a "
                fix = "Route the rows to another agent, or set allow_unsupported_pairing."
                raise ConfigError(f"{what}{server.implementation}.", fix, self.origin)

    def url(self, server: Server) -> str:
        """``http://<host>:<port>`` of ``server``. Raises ConfigError when its block does not say."""
        try:
            host, port = (resolved(server.settings.get(key), self.config) for key in ("host", "port"))
        except MissingReferenceError as error:
            raise ConfigError(f"the address of server {server.name!r}: {error}.", "", self.origin) from error
        if not isinstance(host, str) or not host or isinstance(port, bool) or not str(port).isdigit():
            what = f"server {server.name!r} has no address (host {host!r}, port {port!r})."
            raise ConfigError(what, "Is it started? A configuration of running servers has both.", self.origin)
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def agents_of(server: Server) -> list[str]:
    """The agents that an environment server fronts: any field that refers to one; ``agent_server`` needs no type."""
    found = [
        reference_name(value)
        for key, value in server.settings.items()
        if isinstance(value, Mapping) and (value.get("type") == AGENTS or (key == "agent_server" and value.get("type") is None))
    ]
    return [name for name in found if name is not None]


def attributed_agent(server: Server) -> str | None:
    """The agent whose results those of ``server`` are; None when it fronts several and names none as its own."""
    if server.kind == AGENTS:
        return server.name
    own = reference_name(server.settings.get("agent_server"))
    agents = agents_of(server)
    return own or (agents[0] if len(agents) == 1 else None)


def reference_name(value: Any) -> str | None:
    """The server that ``{type: ..., name: ...}`` refers to."""
    name = value.get("name") if isinstance(value, Mapping) else None
    return name if isinstance(name, str) and name else None


def _pins_of(server: Server) -> list[str]:
    datasets = server.settings.get("datasets")
    entries = [entry for entry in datasets if isinstance(entry, Mapping)] if isinstance(datasets, list) else []
    return list(dict.fromkeys(entry["agent"] for entry in entries if isinstance(entry.get("agent"), str)))


def _servers_in(config: Mapping[str, Any]) -> Iterator[Server]:
    for name, block in config.items():
        for kind in KINDS:
            group = block.get(kind) if isinstance(block, Mapping) else None
            if isinstance(group, Mapping) and group:
                implementation, settings = next(iter(group.items()))
                yield Server(str(name), kind, str(implementation), settings if isinstance(settings, Mapping) else {})
                break


def _near(name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    guess = f"Did you mean {near[0]!r}? " if near else ""
    return f"{guess}There are: {', '.join(names) or 'none'}."

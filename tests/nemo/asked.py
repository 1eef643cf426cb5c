"""A row to ask, and further agents to ask it."""

from __future__ import annotations

from typing import Any

from tests.support.nemo_stub import NemoStub

ASKED = {"responses_create_params": {"input": "?"}}


def with_agents(stub: NemoStub, *names: str, **settings: Any) -> None:
    """Further agents on the same resources server, each with its environment server."""
    where = {"host": "127.0.0.1", "port": stub.work_port}
    for name in names:
        resources = {"type": "resources_servers", "name": "math"}
        stub.config[name] = {"responses_api_agents": {"simple_agent": {"resources_server": resources, **where, **settings}}}
        front = {"agent_server": {"type": "responses_api_agents", "name": name}, **where}
        stub.config[f"{name}_environment"] = {"environment_servers": {"legacy_agent": front}}

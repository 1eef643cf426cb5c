"""Settings under ``agent:`` for ``type: nemo_gym``. Names are those of NeMo Gym's collection configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from collector.agents.base import AgentSettings
from collector.setting_kinds import Seconds
from collector.settings import CONNECTION, REPORTING, StrictModel

#: The entry of ``agent_map`` and of a ``num_repeats`` map that stands for every row without one of its own.
DEFAULT_KEY = "_default"

Name = Annotated[str, Field(min_length=1)]


class HeadServer(StrictModel):
    """Where the head server answers; the default is NeMo Gym's own."""

    host: Name = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65535)] = 11000

    @property
    def url(self) -> str:
        """The address of the merged configuration."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/global_config_dict_yaml"


class Skills(StrictModel):
    """A directory of skill directories, each with a ``SKILL.md``."""

    path: Path


class NemoGymSettings(AgentSettings):
    """Which servers run the rows, and how a row finds its own."""

    head_server: HeadServer = Field(default_factory=HeadServer, json_schema_extra=CONNECTION)
    #: The servers' configuration as the head server gives it, saved as YAML: what a run is checked against while no server is
    #: up yet. A collector compares it with the running servers before it asks them anything.
    config_file: Path | None = Field(default=None, json_schema_extra=REPORTING)
    #: Seconds that the head server may take to answer.
    head_timeout_s: Seconds = Field(default=30.0, json_schema_extra=REPORTING)

    agent_name: Name | None = Field(default=None, description="runs every row; short for agent_map: {_default: NAME}")
    agent_map: dict[Name, Name] = Field(
        default_factory=dict[str, str], description="a row's agent_ref.name or task_source to the agent that runs it"
    )
    fan_out: dict[Name, list[Name]] = Field(
        default_factory=dict[str, list[str]], description="a row's name to the agents that each run it once"
    )
    environment_routing_mode: Literal["agent", "legacy", "taskset"] = "agent"
    environment_server_name: Name | None = Field(default=None, description="where legacy mode sends every flat row")
    environment_server_routes: dict[Name, Name] = Field(
        default_factory=dict[str, str], description="taskset to environment server"
    )
    skills: Skills | None = None
    allow_unsupported_pairing: bool = Field(
        default=False, description="also agents that a resources server's allowed_agents leaves out"
    )

    @property
    def routes(self) -> dict[str, str]:
        """``agent_map`` with ``agent_name`` as its default."""
        return {**self.agent_map, **({DEFAULT_KEY: self.agent_name} if self.agent_name else {})}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        default = self.agent_map.get(DEFAULT_KEY)
        if self.agent_name and default and default != self.agent_name:
            raise ValueError(f"agent_name is {self.agent_name!r} and agent_map.{DEFAULT_KEY} is {default!r}: set one of them")
        for name, agents in self.fan_out.items():
            if not agents:
                raise ValueError(f"fan_out.{name} is empty, so its rows would not run: remove it, or name an agent")
            if len(set(agents)) < len(agents):
                raise ValueError(f"fan_out.{name} names an agent twice: repetition is what num_repeats is for")
        if self.environment_routing_mode == "legacy" and self.environment_server_name is None:
            raise ValueError("environment_routing_mode legacy needs environment_server_name")
        if self.environment_routing_mode == "taskset" and not self.environment_server_routes:
            raise ValueError("environment_routing_mode taskset needs environment_server_routes")
        return self

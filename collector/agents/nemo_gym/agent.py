"""The agent that posts each row to the NeMo Gym server which runs it; the reply comes graded.

One request is one attempt: it is sent again under the same number only when not a byte of it had left. A refused status,
429 and 503 among them, ends the attempt: what stands in front of a server may say it of work that was done.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any, ClassVar, Self

from collector import jsonl
from collector.agents.base import Agent, RowMaker
from collector.agents.nemo_gym.head import checked_servers, running_servers
from collector.agents.nemo_gym.identity import check_same, servers_identity
from collector.agents.nemo_gym.materialize import NemoGymRows
from collector.agents.nemo_gym.reply import episode_outcome_of, outcome_of
from collector.agents.nemo_gym.routing import is_materialized_task, target_of
from collector.agents.nemo_gym.servers import AGENTS, ENVIRONMENTS, Server, Servers, attributed_agent, reference_name
from collector.agents.nemo_gym.settings import NemoGymSettings
from collector.agents.requests import Sender, unusable_reply
from collector.formats import rows
from collector.outcomes import Completed, Failure, Omitted, ServedBy
from collector.prompt import load_prompt
from collector.settings import RunSettings, Timeouts
from collector.transport.client import HttpClient
from collector.transport.exchange import HttpReply


class NemoGymAgent(Agent[NemoGymSettings]):
    """Runs rows on the servers of a NeMo Gym: one ``POST /run`` an attempt, to the environment server that fronts its agent."""

    Settings = NemoGymSettings
    grades: ClassVar[bool] = True

    @classmethod
    def row_maker(cls, run: RunSettings) -> RowMaker:
        """Routes, copies, repeats and numbers the rows as NeMo Gym does."""
        return NemoGymRows(NemoGymSettings.model_validate(run.agent), run, load_prompt(run.prompt_config))

    @cached_property
    def _checked(self) -> Servers:
        return checked_servers(self.settings)

    async def __aenter__(self) -> Self:
        self._servers = await running_servers(self.settings)
        if self.settings.config_file is not None:
            names = [server.name for kind in (ENVIRONMENTS, AGENTS) for server in self._checked.of_kind(kind)]
            check_same(self._checked, self._servers, names)
        self._urls: dict[str, str] = {}
        self._client = await HttpClient(_limits(self.run.timeouts), max_idle=self.run.num_samples_in_parallel).__aenter__()
        self._sender = Sender(self._client, self.run.retry, not_executed=frozenset())
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._client.__aexit__(*exc)

    def check_row(self, row: dict[str, Any]) -> None:
        """Raise ConfigError when no server of the configuration runs ``row``, ValueError when the row cannot be sent."""
        server = target_of(row, self._checked)
        agent = reference_name(row.get("agent_ref")) or attributed_agent(server)
        # The servers may have been started with the guard waived.
        is_waived = self.settings.allow_unsupported_pairing or self._checked.config.get("allow_unsupported_pairing") is True
        if agent is not None and not is_waived:
            self._checked.check_supported(agent, row.get("task_source"))
        if not is_materialized_task(row) and not isinstance(row.get("responses_create_params"), dict):
            raise ValueError("the row has no responses_create_params object")

    def target_of(self, row: dict[str, Any]) -> str:
        """The name of the server that ``row`` is posted to."""
        return target_of(row, self._checked).name

    def identity(self, targets: Collection[str]) -> dict[str, Any]:
        """The settings of ``targets`` and of the servers behind them. Raises ConfigError for one that is missing."""
        servers = [self._checked.get(name, whose="server") for name in sorted(targets)]
        return {
            "targets": [server.name for server in servers],
            "agents": sorted({attributed_agent(server) or server.name for server in servers}),
            "servers": servers_identity(self._checked, targets),
        }

    async def answer(self, row: dict[str, Any]) -> Completed | Failure | Omitted:
        """What the server made of the row."""
        server = target_of(row, self._servers)
        request = episode_request(row) if is_materialized_task(row) else None
        served_by = _stamp(server, row)
        reply = await self._sender.post(self._url(server), jsonl.dumps(row if request is None else request), ())
        if isinstance(reply, Failure):
            return dataclasses.replace(reply, served_by=served_by)
        return _read(reply, request, served_by)

    def _url(self, server: Server) -> str:
        if server.name not in self._urls:
            self._urls[server.name] = f"{self._servers.url(server)}/run"
        return self._urls[server.name]


def episode_request(row: Mapping[str, Any]) -> dict[str, Any]:
    """The body of ``POST /run`` for a materialized task."""
    return {
        "episode_id": {"rollout_id": rows.rollout_id_of(row), "attempt": row.get(rows.ATTEMPT_INDEX, 0)},
        "task": {"task_id": row["task_id"], "task_input": row["task_input"]},
    }


def _read(reply: HttpReply, request: dict[str, Any] | None, served_by: ServedBy | None) -> Completed | Failure | Omitted:
    try:
        value = jsonl.loads(reply.body)
    except ValueError as error:
        failure = unusable_reply(reply, str(error))
        # The class that NeMo Gym's readers know for a body that is no JSON.
        return dataclasses.replace(failure, exception_type="JSONDecodeError", served_by=served_by)
    try:
        if request is not None:
            return episode_outcome_of(value, request, served_by)
        return outcome_of(value, served_by)
    except ValueError as error:
        failure = unusable_reply(reply, str(error))
        return dataclasses.replace(failure, exception_type="InvalidRolloutResult", served_by=served_by)


def _stamp(server: Server, row: Mapping[str, Any]) -> ServedBy | None:
    if server.kind == AGENTS:
        # A NeMo Gym without environment servers: its readers go by agent_ref.
        return None
    task_id = row["task_id"] if is_materialized_task(row) else None
    return ServedBy(server=server.name, result_type=server.implementation, task_id=task_id)


def _limits(timeouts: Timeouts) -> Timeouts:
    """A whole rollout is one request here, during which no byte moves: only the limits that a user set himself count."""
    request_s = timeouts.request_s if "request_s" in timeouts.model_fields_set else timeouts.attempt_s
    stall_s = timeouts.stall_s if "stall_s" in timeouts.model_fields_set else request_s
    return Timeouts(connect_s=timeouts.connect_s, request_s=request_s, stall_s=stall_s, attempt_s=timeouts.attempt_s)

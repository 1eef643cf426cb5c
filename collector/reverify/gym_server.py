"""Saved answers graded by the resources servers of a running NeMo Gym: ``POST /verify``, one request a grading.

A server that keeps state between requests would grade a saved answer by another answer's state, so each is asked first
whether it does (``GET /reverify_mode``). The settings of the servers are the experiment's; where they listen is not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self

from pydantic import Field

from collector import jsonl
from collector.agents.nemo_gym.head import checked_servers, running_servers
from collector.agents.nemo_gym.identity import check_same, servers_identity
from collector.agents.nemo_gym.reply import outcome_of
from collector.agents.nemo_gym.routing import is_materialized_task
from collector.agents.nemo_gym.servers import AGENTS, ENVIRONMENTS, RESOURCES, Server, Servers, reference_name
from collector.agents.nemo_gym.settings import HeadServer, Name, NemoGymSettings
from collector.agents.requests import Sender, unusable_reply
from collector.errors import ConfigError, UnavailableError
from collector.formats import rows
from collector.outcomes import Answer, Completed, Failure, FailureClass, Verdict
from collector.reverify.regrade import SavedAnswer
from collector.setting_kinds import Seconds
from collector.settings import CONNECTION, REPORTING, RetrySettings, Timeouts
from collector.transport.client import HttpClient
from collector.transport.exchange import HttpReply
from collector.verifiers.base import Verifier, VerifierSettings
from collector.verifiers.judge import judge_failed

#: The only mode in which a saved answer is graded as a fresh one is.
STATELESS: Final = "stateless"
#: Keys of a saved row that a server needs to find what the answer left behind.
_LEFT_BEHIND: Final = ("deliverables_dir", "reference_ids")
_MAX_IDLE: Final = 256


class GymServerSettings(VerifierSettings):
    """Settings under ``verifier:`` for ``type: gym_server``."""

    head_server: HeadServer = Field(default_factory=HeadServer, json_schema_extra=CONNECTION)
    #: The servers' configuration as the head server gives it, saved as YAML; those that grade are held against it.
    config_file: Path | None = Field(default=None, json_schema_extra=REPORTING)
    #: Seconds that the head server may take to answer.
    head_timeout_s: Seconds = Field(default=30.0, json_schema_extra=REPORTING)
    #: Grades every row; without it each row's own: that of its ``task_source``, its environment server or its agent.
    resources_server: Name | None = None
    #: One grading, from the moment the request leaves to the last byte.
    timeout_s: Seconds = Field(default=600.0, json_schema_extra=REPORTING)

    @property
    def of_agent(self) -> NemoGymSettings:
        """The same in the words of the agent, which finds the configuration in the same way."""
        return NemoGymSettings(
            type="nemo_gym",
            head_server=self.head_server,
            config_file=self.config_file,
            head_timeout_s=self.head_timeout_s,
        )


class GymServerVerifier(Verifier[GymServerSettings]):
    """Asks the resources server of each row. Whatever becomes of one request is that rollout's only, and keeps its answer."""

    Settings = GymServerSettings
    keeps_answers = True

    def __init__(self, settings: GymServerSettings) -> None:
        super().__init__(settings)
        self._targets: set[str] = set()
        #: Rows that name nobody went to the only server there is.
        self.is_guessed = False

    @cached_property
    def _checked(self) -> Servers:
        return checked_servers(self.settings.of_agent)

    async def __aenter__(self) -> Self:
        self._servers = await running_servers(self.settings.of_agent)
        if self.settings.config_file is not None:
            check_same(self._checked, self._servers, self._targets or self._graders())
        limits = Timeouts(request_s=self.settings.timeout_s, stall_s=self.settings.timeout_s)
        self._client = await HttpClient(limits, max_idle=_MAX_IDLE).__aenter__()
        # What stands in front of a server may answer 503 for work that was done: the next attempt is journalled.
        self._sender = Sender(self._client, RetrySettings(), not_executed=frozenset())
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._client.__aexit__(*exc)

    def check_row(self, row: dict[str, Any]) -> None:
        """Note which server grades ``row``. Raises ConfigError when none does."""
        self._targets.add(self._grader_of(row, self._checked).name)

    def identity(self) -> dict[str, Any]:
        """The settings of the servers that the checked rows go to, and of those behind them; unchecked, of all that grade."""
        return {"servers": servers_identity(self._checked, self._targets or self._graders())}

    async def modes(self) -> dict[str, str]:
        """What each server that the checked rows go to says of its state. Raises UnavailableError when one does not answer."""
        found: dict[str, str] = {}
        limit_s = self.settings.head_timeout_s
        async with HttpClient(Timeouts(request_s=limit_s, stall_s=limit_s)) as client:
            for name in sorted(self._targets):
                url = f"{self._checked.url(self._checked.get(name))}/reverify_mode"
                reply = await client.get(url)
                if not isinstance(reply, HttpReply):
                    raise UnavailableError(f"the resources server does not answer: {reply.reason}.", "Start it.", url)
                found[name] = _mode_in(reply)
        return found

    async def verify(self, row: dict[str, Any], answer: Answer) -> Verdict | Failure:
        """The server's verdict; a server that cannot be asked, or says nothing usable, is ``judge_failed``."""
        body = request_of(row, answer)
        url = f"{self._servers.url(self._grader_of(row, self._servers))}/verify"
        reply = await self._sender.post(url, jsonl.dumps(body), ())
        if isinstance(reply, Failure):
            return judge_failed(reply, answer)
        try:
            outcome = outcome_of(jsonl.loads(reply.body), None)
        except ValueError as error:
            return judge_failed(unusable_reply(reply, str(error)), answer)
        match outcome:
            case Completed(verdict=verdict):
                # Requests are echoed; what is as it was sent is in the row already.
                own = {key: value for key, value in verdict.extra.items() if key not in body or body[key] != value}
                return dataclasses.replace(verdict, extra=own)
            case Failure():
                is_judges = outcome.failure_class in {FailureClass.JUDGE_FAILED, FailureClass.JUDGE_INVALID}
                return dataclasses.replace(outcome, response=answer.response) if is_judges else outcome
            case _:
                return judge_failed(unusable_reply(reply, "the server asked not to record it"), answer)

    def _graders(self) -> set[str]:
        if self.settings.resources_server is not None:
            return {self.settings.resources_server}
        return {server.name for server in self._checked.of_kind(RESOURCES)}

    def _grader_of(self, row: Mapping[str, Any], servers: Servers) -> Server:
        if self.settings.resources_server is not None:
            return servers.get(self.settings.resources_server, kind=RESOURCES, whose="resources server")
        name = _named_grader(row, servers)
        if name is not None:
            return servers.get(name, kind=RESOURCES, whose="resources server")
        choices = list(servers.of_kind(RESOURCES))
        if len(choices) == 1:
            self.is_guessed = True
            return choices[0]
        names = ", ".join(server.name for server in choices) or "none"
        what = f"rollout {row.get(rows.TASK_INDEX)}-{row.get(rows.ROLLOUT_INDEX)} names no resources server."
        raise ConfigError(what, f"Name one as verifier.resources_server; there are: {names}.", servers.origin)


def request_of(row: Mapping[str, Any], answer: Answer) -> dict[str, Any]:
    """The body of ``POST /verify``: the materialized row, its task's input beside it, and the answer with what it left."""
    asked = {key: value for key, value in row.items() if key not in {rows.ATTEMPT_INDEX, rows.REUSE}}
    if is_materialized_task(row) and isinstance(row["task_input"], dict):
        asked |= {key: value for key, value in row["task_input"].items() if key not in asked}
    saved = answer.row if isinstance(answer, SavedAnswer) else {}
    return {**asked, "response": answer.response, **{key: saved[key] for key in _LEFT_BEHIND if key in saved}}


def _named_grader(row: Mapping[str, Any], servers: Servers) -> str | None:
    """The resources server of the row's source, else of its environment server, else of its agent."""
    source = row.get("task_source")
    if isinstance(source, str) and source in servers.by_name and servers.by_name[source].kind == RESOURCES:
        return source
    agent = reference_name(row.get("agent_ref"))
    stamped = row.get(rows.ENVIRONMENT_SERVER)
    found: list[Server] = []
    if isinstance(stamped, str):
        found.append(servers.get(stamped, kind=ENVIRONMENTS, whose="environment server"))
    if agent is not None:
        found += [servers.fronting(agent), servers.get(agent, kind=AGENTS, whose="agent")]
    return next((name for server in found if (name := reference_name(server.settings.get("resources_server")))), None)


def _mode_in(reply: HttpReply) -> str:
    try:
        mode = jsonl.loads(reply.body)
    except ValueError:
        mode = None
    return mode if reply.status == 200 and isinstance(mode, str) else f"status {reply.status}"

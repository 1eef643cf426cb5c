"""The agent that asks an OpenAI-style chat completions endpoint, one request per attempt."""

from __future__ import annotations

import time
from typing import Any, Literal, Self

from collector import jsonl
from collector.agents.base import Agent
from collector.agents.chat_format import KNOWN, NUMBERS, chat_body
from collector.agents.chat_reply import answer_of
from collector.agents.endpoint import EndpointSettings, endpoint_of
from collector.agents.parameters import check_numbers, extra_body_of, model_of, parameters_of
from collector.agents.requests import Sender, unusable_reply
from collector.outcomes import Answer, Failure
from collector.transport.client import HttpClient


class OpenAIChatSettings(EndpointSettings):
    """Settings under ``agent:`` for ``type: openai_chat``."""

    #: The name under which ``max_output_tokens`` is sent; hosted reasoning models want ``max_completion_tokens``.
    max_tokens_key: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"


class OpenAIChatAgent(Agent[OpenAIChatSettings]):
    """Sends a row as chat messages to ``{policy_base_url}/chat/completions``; the reply is kept as a Responses object."""

    Settings = OpenAIChatSettings

    async def __aenter__(self) -> Self:
        self._endpoint = endpoint_of(self.run, self.settings)
        self._client = await HttpClient(self.run.timeouts, max_idle=self.run.num_samples_in_parallel).__aenter__()
        self._sender = Sender(self._client, self.run.retry)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._client.__aexit__(*exc)

    def check_row(self, row: dict[str, Any]) -> None:
        """Raise ValueError with the key that chat completions cannot express."""
        self.body_of(row)

    def body_of(self, row: dict[str, Any]) -> dict[str, Any]:
        """The body that is sent for ``row``."""
        return self._body_of(parameters_of(row, KNOWN))

    def _body_of(self, params: dict[str, Any]) -> dict[str, Any]:
        check_numbers(params, NUMBERS)
        body = chat_body(params, model_of(params, self.run.policy_model_name), max_tokens_key=self.settings.max_tokens_key)
        return {**body, **extra_body_of(params, self.settings.extra_body)}

    async def answer(self, row: dict[str, Any]) -> Answer | Failure:
        """One completion; its failure is classified as ``collector.agents.requests`` says."""
        params = parameters_of(row, KNOWN)
        body = self._body_of(params)
        reply = await self._sender.post(self._endpoint.url("chat/completions"), jsonl.dumps(body), self._endpoint.headers)
        if isinstance(reply, Failure):
            return reply
        try:
            return answer_of(jsonl.loads(reply.body), params, model=body["model"], now=time.time())
        except ValueError as error:
            return unusable_reply(reply, str(error))

"""The agent that asks an OpenAI-style responses endpoint, one request per attempt; the reply is kept as it came."""

from __future__ import annotations

from typing import Any, Final, Self

from collector import jsonl
from collector.agents.base import Agent
from collector.agents.endpoint import EndpointSettings, endpoint_of
from collector.agents.parameters import check_numbers, extra_body_of, model_of, parameters_of
from collector.agents.requests import Sender, unusable_reply
from collector.formats import rows
from collector.outcomes import Answer, Failure
from collector.transport.client import HttpClient

_NUMBERS: Final = frozenset({"temperature", "top_p", "seed", "max_output_tokens", "top_logprobs", "max_tool_calls"})
_OTHERS: Final = (
    "input", "instructions", "model", "metadata", "tools", "tool_choice", "parallel_tool_calls", "text", "reasoning", "stop",
    "include", "truncation", "store", "service_tier", "user", "prompt", "previous_response_id",
)  # fmt: skip
_KNOWN: Final = frozenset({*_NUMBERS, *_OTHERS})


class OpenAIResponsesSettings(EndpointSettings):
    """Settings under ``agent:`` for ``type: openai_responses``."""


class OpenAIResponsesAgent(Agent[OpenAIResponsesSettings]):
    """Sends a row's parameters to ``{policy_base_url}/responses``."""

    Settings = OpenAIResponsesSettings

    async def __aenter__(self) -> Self:
        self._endpoint = endpoint_of(self.run, self.settings)
        self._client = await HttpClient(self.run.timeouts, max_idle=self.run.num_samples_in_parallel).__aenter__()
        self._sender = Sender(self._client, self.run.retry)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._client.__aexit__(*exc)

    def check_row(self, row: dict[str, Any]) -> None:
        """Raise ValueError with the key that cannot be sent."""
        self.body_of(row)

    def body_of(self, row: dict[str, Any]) -> dict[str, Any]:
        """The body that is sent for ``row``."""
        params = parameters_of(row, _KNOWN)
        check_numbers(params, _NUMBERS)
        extra = extra_body_of(params, self.settings.extra_body)
        metadata = {key: value for key, value in params.pop("metadata", {}).items() if key != "extra_body"}
        named = {**params, "model": model_of(params, self.run.policy_model_name)}
        return {**named, **({"metadata": metadata} if metadata else {}), **extra}

    async def answer(self, row: dict[str, Any]) -> Answer | Failure:
        """One response; its failure is classified as ``collector.agents.requests`` says."""
        body = jsonl.dumps(self.body_of(row))
        reply = await self._sender.post(self._endpoint.url("responses"), body, self._endpoint.headers)
        if isinstance(reply, Failure):
            return reply
        try:
            return answer_in(jsonl.loads(reply.body))
        except ValueError as error:
            return unusable_reply(reply, str(error))


def answer_in(response: Any) -> Answer:
    """The answer in a decoded Responses object. Raises ValueError with what is missing when there is none."""
    if not isinstance(response, dict) or not isinstance(response.get("output"), list):
        raise ValueError("it has no output list")  # noqa: TRY004 - data
    status = response.get("status", "completed")
    if not isinstance(status, str) or status not in {"completed", "incomplete"}:
        raise ValueError(f"its status is {status!r}: {_message(response.get('error'))}")
    truncated = status == "incomplete" and rows.names_token_limit(response.get("incomplete_details"))
    return Answer(response=response, text=text_in(response["output"]), truncated=truncated)


def text_in(output: list[Any]) -> str:
    """What the messages of a Responses object's output say, joined."""
    messages = [item for item in output if isinstance(item, dict) and item.get("type") == "message"]
    contents = [content for message in messages if isinstance(content := message.get("content"), list)]
    parts = [part for content in contents for part in content if isinstance(part, dict)]
    return "".join(part["text"] for part in parts if part.get("type") == "output_text" and isinstance(part.get("text"), str))


def _message(error: Any) -> str:
    return str(error.get("message")) if isinstance(error, dict) else "no error is given"

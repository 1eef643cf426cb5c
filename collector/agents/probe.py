"""Whether an endpoint is ready: it lists the model that is wanted, and completes a prompt with it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from collector import jsonl
from collector.agents.endpoint import Endpoint, EndpointSettings, endpoint_of
from collector.agents.requests import redacted, words_of
from collector.settings import RunSettings, Timeouts
from collector.transport.client import HttpClient
from collector.transport.exchange import Exchange, HttpReply

#: Enough for a model to say something, too little to cost time.
_PROBE_TOKENS: Final = 4
_PROBE_TIMEOUTS: Final = Timeouts(connect_s=5, request_s=60, stall_s=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What a probe found. ``reason`` says in one line what is wrong; it is empty when ``ok``."""

    ok: bool
    model_ids: tuple[str, ...] = ()
    reason: str = ""
    #: The endpoint answers and serves other models: waiting longer does not help.
    wrong_model: bool = False


async def probe(
    run: RunSettings,
    *,
    timeouts: Timeouts = _PROBE_TIMEOUTS,
    environ: Mapping[str, str] = os.environ,
) -> ProbeResult:
    """Ask the run's endpoint for its models and for one tiny completion of the kind the run's agent needs.

    A server without a model list is taken at its completion. Raises ConfigError for settings that name no endpoint.
    """
    shared = {key: run.agent[key] for key in ("api_key_env", "headers") if key in run.agent}
    endpoint = endpoint_of(run, EndpointSettings(type=run.agent["type"], **shared), environ)
    async with HttpClient(timeouts, environ=environ) as client:
        listed = redacted(await client.get(endpoint.url("models"), endpoint.headers), endpoint.headers)
        model_ids = model_ids_in(listed)
        if isinstance(listed, HttpReply) and listed.status in {401, 403}:
            return ProbeResult(ok=False, reason=words_of(listed))
        if model_ids and run.policy_model_name and run.policy_model_name not in model_ids:
            reason = f"it serves {', '.join(model_ids)} and not {run.policy_model_name}"
            return ProbeResult(ok=False, model_ids=model_ids, reason=reason, wrong_model=True)
        if not isinstance(listed, HttpReply):
            return ProbeResult(ok=False, reason=words_of(listed))
        model = run.policy_model_name or (model_ids[0] if model_ids else "")
        completed = await _complete(client, endpoint, model, run.agent)
    completed = redacted(completed, endpoint.headers)
    ok = isinstance(completed, HttpReply) and completed.status == 200
    return ProbeResult(ok=ok, model_ids=model_ids, reason="" if ok else words_of(completed))


def model_ids_in(exchange: Exchange) -> tuple[str, ...]:
    """The model names in the reply of ``/models``; none when it is no such reply."""
    if not isinstance(exchange, HttpReply) or exchange.status != 200:
        return ()
    try:
        listing = jsonl.loads(exchange.body)
    except ValueError:
        return ()
    entries = listing.get("data") if isinstance(listing, dict) else None
    if not isinstance(entries, list):
        return ()
    return tuple(entry["id"] for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str))


async def _complete(client: HttpClient, endpoint: Endpoint, model: str, agent: dict[str, Any]) -> Exchange:
    named: dict[str, Any] = {"model": model} if model else {}
    if agent["type"] == "openai_responses":
        # The interface allows no fewer than 16.
        body = {**named, "input": "Say OK.", "max_output_tokens": 16}
        return await client.post_json(endpoint.url("responses"), jsonl.dumps(body), endpoint.headers)
    # Hosted reasoning models refuse max_tokens; the setting that a run needs for them tells.
    body = {
        **named,
        "messages": [{"role": "user", "content": "Say OK."}],
        agent.get("max_tokens_key", "max_tokens"): _PROBE_TOKENS,
    }
    return await client.post_json(endpoint.url("chat/completions"), jsonl.dumps(body), endpoint.headers)

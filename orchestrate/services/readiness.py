"""Whether a service is ready: its health path answers, it serves the model by name, and it completes one real request.

A health path alone proves little: servers answer it while the weights are loading, or while every completion hangs.
"""

from __future__ import annotations

from pydantic import SecretStr

from collector.agents.probe import probe
from collector.errors import ServiceError
from collector.settings import RunSettings, Timeouts
from collector.transport.client import HttpClient
from collector.transport.exchange import HttpReply
from orchestrate.services.endpoint import Endpoint

_HEALTH_TIMEOUTS = Timeouts(connect_s=5, request_s=10, stall_s=10)


class ModelProbe:
    """Probes the services of one job; the policy model is asked in the way that the run's agent will ask it."""

    def __init__(self, settings: RunSettings, policy_model: str | None) -> None:
        self._settings = settings
        self._policy_model = policy_model

    async def __call__(self, name: str, endpoint: Endpoint, health_url: str | None) -> str | None:
        """Why the service is not ready, None when it is. Raises ServiceError when it serves another model."""
        if health_url is not None and (trouble := await _health(health_url)) is not None:
            return trouble
        if not endpoint.model:
            return None
        found = await probe(self._settings_for(name, endpoint))
        if found.wrong_model:
            raise ServiceError(f"{found.reason}.", "Check served_model_name.", f"service {name}")
        return None if found.ok else found.reason

    def _settings_for(self, name: str, endpoint: Endpoint) -> RunSettings:
        update: dict[str, object] = {
            "policy_base_url": endpoint.base_url,
            "policy_model_name": endpoint.model,
            "policy_api_key": SecretStr(endpoint.api_key) if endpoint.api_key else None,
        }
        if name != self._policy_model:
            update["agent"] = {"type": "openai_chat"}
        return self._settings.model_copy(update=update)


async def _health(url: str) -> str | None:
    async with HttpClient(_HEALTH_TIMEOUTS) as client:
        reply = await client.get(url)
    if not isinstance(reply, HttpReply):
        return f"{url}: {reply.reason}"
    return None if reply.status == 200 else f"{url}: status {reply.status}"

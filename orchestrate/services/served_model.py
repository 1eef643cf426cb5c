"""Whether the server of a run lists the model that the run names: many servers answer whatever name they are asked by."""

from __future__ import annotations

import os
from collections.abc import Mapping

from collector.agents.base import AGENTS
from collector.agents.endpoint import EndpointSettings, endpoint_of
from collector.agents.probe import model_ids_in
from collector.settings import RunSettings, Timeouts
from collector.transport.client import HttpClient

#: A warning is not worth a longer wait.
_TIMEOUTS = Timeouts(connect_s=2, request_s=3, stall_s=3)


async def other_model_warning(settings: RunSettings, *, environ: Mapping[str, str] = os.environ) -> str | None:
    """What to tell a person whose server lists models and not the run's; None when it lists it, or no list is to be had."""
    asked = settings.policy_model_name
    if asked is None or settings.policy_base_url is None or not issubclass(_settings_of(settings), EndpointSettings):
        return None
    known = {key: settings.agent[key] for key in ("api_key_env", "headers") if key in settings.agent}
    endpoint = endpoint_of(settings, EndpointSettings(type=settings.agent["type"], **known), environ)
    async with HttpClient(_TIMEOUTS, environ=environ) as client:
        listed = model_ids_in(await client.get(endpoint.url("models"), endpoint.headers))
    if not listed or asked in listed:
        return None
    return f"the server lists {', '.join(listed)} and not {asked}; whichever answers, the score is recorded under {asked}."


def _settings_of(settings: RunSettings) -> type[object]:
    return AGENTS.load(settings.agent["type"]).Settings

"""The file ``<stem>_config.yaml``: the settings of a run as they were used, secrets masked.

What is secret is known by its type, never by the look of a name: secret fields, and what an address holds beside its host and
path. A reference to the environment is no secret and stays. ``max_output_tokens`` is a number, not a token.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml
from pydantic import BaseModel, SecretBytes, SecretStr

from collector import durable
from collector.artifacts import RunArtifacts
from collector.errors import ConfigError
from collector.preparation.prepare import make_agent, make_verifier
from collector.settings import RunSettings
from collector.text.masked import MASK, masked_address


def publish_config(artifacts: RunArtifacts, settings: RunSettings, *, fence: Callable[[], None] | None = None) -> None:
    """Publish the masked settings beside the rollouts unless they are there already.

    ``fence`` tells by a FencedError that the shard's lock is lost: then nothing is replaced.
    """
    data = masked_yaml(settings)
    try:
        if artifacts.config.read_bytes() == data:
            return
    except FileNotFoundError:
        pass
    durable.publish(artifacts.config, data, fence=fence)


def masked_yaml(settings: RunSettings) -> bytes:
    """The file's bytes: every setting with its value, defaults included, those of plug-ins as the plug-ins read them."""
    fields = {name: getattr(settings, name) for name in type(settings).model_fields}
    fields["agent"] = _of_plugin(lambda: make_agent(settings).settings, settings.agent)
    fields["verifier"] = _of_plugin(lambda: make_verifier(settings).settings, settings.verifier)
    return yaml.safe_dump(_masked(fields), sort_keys=False, allow_unicode=True).encode()


def _of_plugin(make: Callable[[], BaseModel], given: dict[str, Any]) -> object:
    try:
        return make()
    except ConfigError:
        # Without its model nothing says which of its settings are secret.
        return {"type": given["type"], "settings": MASK}


def _masked(value: Any) -> Any:  # noqa: PLR0911 - one return a kind of value
    match value:
        case SecretStr() | SecretBytes():
            return MASK
        case BaseModel():
            return {name: _masked(getattr(value, name)) for name in type(value).model_fields}
        case dict():
            return {str(key): _masked(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_masked(item) for item in value]
        case str():
            return masked_address(value)
        case bool() | int() | float() | None:
            return value
        case _:
            return str(value)

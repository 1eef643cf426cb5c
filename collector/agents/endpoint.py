"""Where the model is and how to speak to it: base URL, key and headers, none of which belongs to the experiment."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import Field

from collector.agents.base import AgentSettings
from collector.errors import ConfigError
from collector.settings import CONNECTION, RunSettings, StrictModel

#: Headers that carry a key; its place is the environment.
KEY_HEADERS: Final = frozenset({"authorization", "proxy-authorization", "x-api-key", "api-key"})


def keys_in(headers: Mapping[str, object]) -> Iterator[str]:
    """What is wrong with each of ``headers`` that holds a key itself, where a file should name the key's variable."""
    for name, value in headers.items():
        if isinstance(value, str) and str(name).lower() in KEY_HEADERS:
            yield f"{name}: a key does not belong into a file: write {{env: VARIABLE}}"


class EnvReference(StrictModel):
    """A value that stays in the environment: ``{env: NAME}``."""

    env: str = Field(min_length=1)


class EndpointSettings(AgentSettings):
    """What every agent that speaks to an OpenAI-style server can be told."""

    #: Merged over each request's body, after the row's own ``metadata.extra_body``; the way to send a server's own parameters.
    extra_body: dict[str, Any] = Field(default_factory=dict)
    #: Name of the environment variable with the key; ``policy_api_key`` is used without it.
    api_key_env: str | None = Field(default=None, json_schema_extra=CONNECTION)
    headers: dict[str, EnvReference | str] = Field(default_factory=dict[str, EnvReference | str], json_schema_extra=CONNECTION)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server's address and the header lines of each request; the lines are kept out of every printed form."""

    base_url: str
    headers: tuple[str, ...] = field(repr=False, default=())

    def url(self, path: str) -> str:
        """The address of ``path`` (``chat/completions``) below the base URL."""
        return f"{self.base_url}/{path}"


def endpoint_of(run: RunSettings, settings: EndpointSettings, environ: Mapping[str, str] = os.environ) -> Endpoint:
    """The endpoint that a run speaks to. Raises ConfigError for a missing URL, an unset variable or an impossible value."""
    key = run.policy_api_key.get_secret_value() if run.policy_api_key else None
    return endpoint_at(
        run.policy_base_url,
        url_key="policy_base_url",
        section="agent",
        headers=settings.headers,
        api_key=key,
        api_key_env=settings.api_key_env,
        environ=environ,
    )


def endpoint_at(
    url: str | None,
    *,
    url_key: str,
    section: str,
    headers: Mapping[str, EnvReference | str],
    api_key: str | None = None,
    api_key_env: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Endpoint:
    """The endpoint at ``url``; problems are told under ``url_key`` and the keys of ``section``. Raises ConfigError."""
    base_url = _base_url(url, url_key)
    if api_key_env is not None:
        api_key = _value(f"{section}.api_key_env", EnvReference(env=api_key_env), environ)
    values = {name: _value(f"{section}.headers.{name}", value, environ) for name, value in headers.items()}
    return Endpoint(base_url, tuple(_header_lines(values, api_key, section)))


def _base_url(text: str | None, key: str) -> str:
    if text is None:
        raise ConfigError(f"{key} is missing.", "Give the server's URL up to and including /v1.")
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or not text.isprintable() or " " in text:
        raise ConfigError(f"{key} is not an http or https URL.", "Write it like http://host:8000/v1.")
    return text.rstrip("/")


def _header_lines(values: dict[str, str], key: str | None, section: str) -> list[str]:
    if key and not any(name.lower() == "authorization" for name in values):
        values["Authorization"] = f"Bearer {key.strip()}"
    for name, value in values.items():
        if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
            raise ConfigError(f"{section}.headers: {name!r} is not a header name.")
        if not value.isprintable():
            raise ConfigError(f"the value of header {name} has a line break or another control character.")
    return [f"{name}: {value}" for name, value in values.items()]


def _value(key: str, value: EnvReference | str, environ: Mapping[str, str]) -> str:
    if isinstance(value, str):
        return value.strip()
    if value.env not in environ:
        raise ConfigError(f"{key}: the environment variable {value.env} is not set.", "Set it where the run starts.")
    return environ[value.env].strip()

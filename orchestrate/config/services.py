"""What a job may start or use beside the collector: commands of its own and servers that run elsewhere."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, PlainValidator

from collector.settings import Seconds, StrictModel
from orchestrate.config.values import EnvMap, Line, VariableName


def _check_command(value: Any) -> str | list[str]:
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, list) and value and all(isinstance(part, str) for part in value) and value[0]:
        return value
    raise ValueError("must be a text (run by bash) or a list of texts (run as it stands)")


def _check_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"{value!r} is not an http or https URL")
    if parts.username is not None or parts.password is not None or parts.query:
        raise ValueError("must not carry a user, a password or a query: name the key's variable in api_key_env")
    return value.rstrip("/")


def _check_path(value: str) -> str:
    if not value.startswith("/"):
        raise ValueError("must start with /")
    return value


Command = Annotated[str | list[str], PlainValidator(_check_command)]
HttpUrl = Annotated[Line, AfterValidator(_check_url)]
UrlPath = Annotated[Line, AfterValidator(_check_path)]


class HealthCheck(StrictModel):
    """A path that answers 200 when the service is up; asked before the model itself is."""

    path: UrlPath = "/health"


class CommandService(StrictModel):
    """A program that the job starts, watches and stops. ``{port}`` and ``{host}`` in command and env are filled in."""

    type: Literal["command"]
    command: Command
    served_model_name: str
    env: EnvMap = Field(default_factory=dict)
    cwd: Line | None = None
    #: null: a free port is chosen by each job, so that two jobs can share a node.
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    ready_timeout_s: Seconds = 600.0
    health_check: HealthCheck | None = None
    #: Seconds between SIGTERM and SIGKILL when the service is stopped.
    stop_grace_s: Seconds = 10.0


class ExternalService(StrictModel):
    """A server that somebody else runs."""

    type: Literal["external"]
    url: HttpUrl
    served_model_name: str
    #: The variable that holds the key; its value is read by the job and never written.
    api_key_env: VariableName | None = None
    ready_timeout_s: Seconds = 60.0


Service: TypeAlias = Annotated[CommandService | ExternalService, Field(discriminator="type")]

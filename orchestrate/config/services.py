"""What a job may start or use beside the collector: commands of its own and servers that run elsewhere."""

from __future__ import annotations

import shlex
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, model_validator

from collector.addresses import check_http
from collector.setting_kinds import Count, Seconds
from collector.settings import StrictModel
from orchestrate.config.values import EnvMap, Line, VariableName


def _check_command(value: Any) -> str | list[str]:
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, list) and value and all(isinstance(part, str) for part in value) and value[0]:
        return value
    raise ValueError("must be a text (run by bash) or a list of texts (run as it stands)")


def check_url(value: str) -> str:
    """``value`` without a final slash. Raises ValueError, which never shows it: it may carry a key."""
    return check_http(value, "name the key's variable in api_key_env").rstrip("/")


def _check_path(value: str) -> str:
    if not value.startswith("/"):
        raise ValueError("must start with /")
    return value


def _check_image(value: str) -> str:
    is_file = value.endswith((".sqsh", ".squashfs")) or value.startswith(("./", "../", "~"))
    if is_file and not value.startswith("/"):
        # Pyxis takes what does not begin with / or ./ for a name in a registry, and ./ depends on where the job runs.
        raise ValueError(f"{value!r} is a file: write its absolute path")
    return value


def _check_mount(value: str) -> str:
    parts = value.split(":")
    if "," in value or len(parts) > 3 or not all(parts):
        raise ValueError(f"{value!r}: write PATH, PATH:INSIDE or PATH:INSIDE:FLAGS; Pyxis cannot mount a path with ',' or ':'")
    if not all(part.startswith("/") for part in parts[:2]):
        raise ValueError(f"{value!r}: both paths of a mount are absolute")
    return value


def _split_arguments(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return shlex.split(value)
    except ValueError as error:
        raise ValueError(f"cannot be split as a shell would: {error}; write a list") from error


ContainerImage = Annotated[Line, AfterValidator(_check_image)]
Mount = Annotated[Line, AfterValidator(_check_mount)]
ExtraArguments = Annotated[list[str], BeforeValidator(_split_arguments)]
Command = Annotated[str | list[str], PlainValidator(_check_command)]
HttpUrl = Annotated[Line, AfterValidator(check_url)]
UrlPath = Annotated[Line, AfterValidator(_check_path)]


class HealthCheck(StrictModel):
    """A path that answers 200 when the service is up; asked before the model itself is."""

    path: UrlPath = "/health"


class StartedService(StrictModel):
    """What all services that the job itself starts, watches and stops have in common."""

    env: EnvMap = Field(default_factory=dict)
    cwd: Line | None = None
    #: The node pool on whose first node it runs; null: the first pool.
    node_pool: Line | None = None
    #: null: a free port is chosen by each job, so that two jobs can share a node.
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    ready_timeout_s: Seconds = 600.0
    health_check: HealthCheck | None = None
    #: Seconds between SIGTERM and SIGKILL when the service is stopped.
    stop_grace_s: Seconds = 10.0
    #: How often a job brings its services up again when this one, once ready, ends in the middle of the work.
    max_restarts: Annotated[int, Field(ge=0)] = 1
    #: An image for Pyxis: a registry reference, or a file by its absolute path. null: the program runs on the node itself.
    container: ContainerImage | None = None
    #: ``path``, ``path:inside`` or ``path:inside:flags``.
    mounts: list[Mount] = Field(default_factory=list)


class CommandService(StartedService):
    """A program. ``{port}`` and ``{host}`` in command and env are filled in."""

    type: Literal["command"]
    command: Command
    #: null: it serves no model, and is ready when its health path answers.
    served_model_name: str | None = None

    @model_validator(mode="after")
    def _can_be_found_ready(self) -> Self:
        if self.served_model_name is None and self.health_check is None:
            raise ValueError("served_model_name is missing; a service that serves no model needs a health_check instead")
        return self


class VllmService(StartedService):
    """``vllm serve``: one instance on the GPUs of one job."""

    type: Literal["vllm"]
    model: Line
    #: null: the model's own name.
    served_model_name: Line | None = None
    tensor_parallel_size: Count = 1
    pipeline_parallel_size: Count = 1
    trust_remote_code: bool = False
    #: Further arguments of ``vllm serve``: a list as it stands, or a text that is split as a shell would.
    extra_args: ExtraArguments = Field(default_factory=list)
    health_check: HealthCheck | None = Field(default_factory=HealthCheck)

    @property
    def gpus(self) -> int:
        """GPUs that the instance uses."""
        return self.tensor_parallel_size * self.pipeline_parallel_size


class ExternalService(StrictModel):
    """A server that somebody else runs."""

    type: Literal["external"]
    url: HttpUrl
    served_model_name: str
    #: The variable that holds the key; its value is read by the job and never written.
    api_key_env: VariableName | None = None
    ready_timeout_s: Seconds = 60.0


Service: TypeAlias = Annotated[CommandService | VllmService | ExternalService, Field(discriminator="type")]

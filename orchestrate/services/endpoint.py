"""Where a service answers, and who finds out whether it does."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a service answers, and as which model; an empty name is a service without one."""

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)


class Probe(Protocol):
    """Returns why the model at an endpoint is not ready yet, or None when it answered; within a minute.

    Raises ServiceError when waiting longer cannot help.
    """

    def __call__(self, name: str, endpoint: Endpoint, health_url: str | None) -> Awaitable[str | None]: ...

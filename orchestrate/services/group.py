"""The services of one job: started, proved ready, watched while the collector works, stopped with all that they started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Self

from collector.errors import ServiceError
from orchestrate.config.gpus import divide_devices
from orchestrate.config.pools import Placement
from orchestrate.config.services import CommandService, ExternalService, VllmService
from orchestrate.config.values import resolve_env
from orchestrate.services.endpoint import Endpoint, Probe
from orchestrate.services.running import DEVICES, RunningService
from orchestrate.services.waiting import Waiting


class ServiceGroup:
    """Every service of a job; all of them are up inside the context."""

    def __init__(self, running: Mapping[str, RunningService], external: Mapping[str, tuple[Endpoint, float]]) -> None:
        self._running = dict(running)
        self._external = dict(external)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Start all of them; they stop in reverse order, also when one cannot be started."""
        async with AsyncExitStack() as stack:
            for service in self._running.values():
                await stack.enter_async_context(service)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def wait_ready(self, probe: Probe, say: Callable[[str], None] = lambda _line: None) -> None:
        """Return when every service answers, those of others included. Raises ServiceError for the first that will not.

        ``say`` is told who is waited for, where and why.
        """
        waits = [service.wait_ready(probe, say) for service in self._running.values()]
        waits += [
            _wait_external(name, Waiting(name, endpoint, limit_s, say), probe, limit_s)
            for name, (endpoint, limit_s) in self._external.items()
        ]
        await _first_error(waits)

    def check_alive(self) -> None:
        """Raise ServiceError when one of the processes has ended."""
        for service in self._running.values():
            service.check_alive()

    async def watch(self) -> None:
        """Raise ServiceError when one of the processes ends; return never, or at once when there is none."""
        await _first_error([service.watch() for service in self._running.values()])

    def restarts_allowed(self) -> int:
        """How often the services may be brought up again after one of them ended: that one's allowance."""
        ended = [service for service in self._running.values() if service.has_ended()]
        return min((service.restarts_allowed() for service in ended), default=0)

    def endpoints(self) -> dict[str, Endpoint]:
        """Where every service answers."""
        return {name: self.endpoint(name) for name in [*self._running, *self._external]}

    def endpoint(self, name: str) -> Endpoint:
        """Where the service called ``name`` answers."""
        return self._external[name][0] if name in self._external else self._running[name].endpoint


def group_of(
    services: Mapping[str, CommandService | VllmService | ExternalService],
    *,
    logs: Path,
    job: str,
    environ: Mapping[str, str],
    placements: Mapping[str, Placement] | None = None,
) -> ServiceGroup:
    """The services of a job called ``job``; nothing is started yet. Raises ConfigError when a variable is missing.

    ``placements`` are those of services that run on another node than this one.
    """
    elsewhere = placements or {}
    gpus = {n: service.gpus for n, service in services.items() if isinstance(service, VllmService) and n not in elsewhere}
    devices = divide_devices(environ.get(DEVICES), gpus)
    environs = {name: {**environ, DEVICES: own} for name, own in devices.items()}
    running = {
        name: RunningService(
            name,
            service,
            log=logs / f"{name}-{job}.log",
            job=job,
            environ=environs.get(name, environ),
            placement=elsewhere.get(name),
        )
        for name, service in services.items()
        if not isinstance(service, ExternalService)
    }
    external = {
        name: (_external(name, service, environ), service.ready_timeout_s)
        for name, service in services.items()
        if isinstance(service, ExternalService)
    }
    return ServiceGroup(running, external)


async def _wait_external(name: str, waiting: Waiting, probe: Probe, limit_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await waiting.until_ready(probe)
            return
    raise ServiceError(f"did not answer within {limit_s:g} s ({waiting.reason}).", "Check its url.", f"service {name}")


async def _first_error(waits: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Return when all of ``waits`` do, or raise what the first of them raises and end the others."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _external(name: str, service: ExternalService, environ: Mapping[str, str]) -> Endpoint:
    if service.api_key_env is None:
        return Endpoint(service.url, service.served_model_name)
    key = resolve_env({"key": f"runtime:{service.api_key_env}"}, environ, where=f"service {name}")["key"]
    return Endpoint(service.url, service.served_model_name, key)

"""Addresses in a configuration that mean the machine where they are used: on a cluster that is the job's node. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from collector.addresses import is_loopback
from collector.text.counted import agreeing
from orchestrate.config.services import ExternalService
from orchestrate.config.submit import SubmitConfig

#: Keys of a benchmark's ``run`` below which the collector is told whom to ask; others are for servers, or for nobody.
_ASKED: Final = ("policy_base_url", "agent", "verifier")


def loopback_warning(config: SubmitConfig, servers: Mapping[str, str]) -> str | None:
    """What to know of addresses that a Slurm job would look for on its own node; None where there are none.

    ``servers`` are those that exports ask, by key. Where a job itself starts what listens there, by a service or a line of
    ``setup``, an address is right.
    """
    compute = config.the_compute
    if compute.type != "slurm":
        return None
    started = [*compute.setup, *map(repr, _started(config))]
    addresses = [*_addresses(config), *((key, server) for key, server in servers.items() if is_loopback(server))]
    found = [f"{key} ({address})" for key, address in addresses if not any(_names(address, t) for t in started)]
    if not found:
        return None
    return f"{', '.join(found)} {agreeing(len(found), 'mean')} the machine that asks: each job's compute node, not this one"


def _started(config: SubmitConfig) -> Iterator[dict[str, Any]]:
    """What tells which ports the services that jobs start listen on."""
    for service in config.services.values():
        if not isinstance(service, ExternalService):
            yield service.model_dump(mode="json", include={"command", "port", "env", "extra_args"})


def _names(address: str, text: str) -> bool:
    """Whether ``text`` speaks of the address's port."""
    port = re.search(r":(\d+)(?:/|$)", address)
    return port is not None and re.search(rf"(?<!\d){port[1]}(?!\d)", text) is not None


def _addresses(config: SubmitConfig) -> Iterator[tuple[str, str]]:
    for name, service in config.services.items():
        if isinstance(service, ExternalService):
            yield from _loopback(f"services.{name}.url", service.url)
    for name, benchmark in config.driver.benchmarks.items():
        for key in _ASKED:
            yield from _loopback(f"driver.benchmarks.{name}.run.{key}", benchmark.run.get(key))


def _loopback(key: str, value: Any) -> Iterator[tuple[str, str]]:
    """The addresses in ``value``, whatever it is made of, each with its key."""
    if isinstance(value, str) and is_loopback(value):
        yield key, value
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from _loopback(f"{key}.{name}", part)
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from _loopback(f"{key}[{number}]", part)

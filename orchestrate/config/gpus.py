"""Whether the GPUs of a job are enough for its services, and whether some would be idle. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrate.config.compute import SlurmCompute
from orchestrate.config.services import VllmService
from orchestrate.config.submit import SubmitConfig


def gpu_problems(config: SubmitConfig) -> list[str]:
    """Why services do not fit on the first node of their pool; empty when nothing says how many GPUs it has."""
    return [problem for pool in _pools(config) for problem in _pool_problems(pool)]


def gpu_warning(config: SubmitConfig) -> str | None:
    """What is idle in every job; None when nothing is, or nobody can tell."""
    pools = _pools(config)
    if any(service.type == "command" for service in config.services.values()):
        # Nobody knows how many GPUs a program of the user takes.
        return None
    used = sum(sum(pool.wanted.values()) for pool in pools if pool.gpus is not None)
    whole = sum(pool.gpus * pool.nodes for pool in pools if pool.gpus is not None)
    return f"{whole - used} of {whole} GPUs of each job are idle: services use {used}" if whole > used else None


@dataclass(frozen=True, slots=True)
class _Pool:
    """The GPUs of each node of a pool, None where nothing says how many, and what its services need."""

    name: str | None
    is_first: bool
    gpus: int | None
    nodes: int
    wanted: dict[str, int]


def _pools(config: SubmitConfig) -> list[_Pool]:
    compute = config.the_compute
    if not isinstance(compute, SlurmCompute):
        return []
    services = {name: service for name, service in config.services.items() if isinstance(service, VllmService)}
    if not compute.node_pools:
        wanted = {name: service.gpus for name, service in services.items()}
        return [_Pool(None, is_first=True, gpus=compute.gpus_per_node, nodes=compute.nodes, wanted=wanted)]
    first = next(iter(compute.node_pools))
    return [
        _Pool(
            name,
            is_first=name == first,
            gpus=pool.gpus_per_node,
            nodes=pool.nodes,
            wanted={key: service.gpus for key, service in services.items() if (service.node_pool or first) == name},
        )
        for name, pool in compute.node_pools.items()
    ]


def _pool_problems(pool: _Pool) -> Iterator[str]:
    told = ", ".join(f"{name} {count}" for name, count in pool.wanted.items())
    where = "" if pool.name is None else f" of node pool {pool.name}"
    if pool.gpus is not None and sum(pool.wanted.values()) > pool.gpus:
        yield f"services: need {sum(pool.wanted.values())} GPUs on one node{where} ({told}) and gpus_per_node is {pool.gpus}"
    if not pool.is_first and len(pool.wanted) > 1:
        yield f"services: {', '.join(pool.wanted)} would share the GPUs{where}: only those of the first pool can be divided"


def divide_devices(visible: str | None, wanted: Mapping[str, int]) -> dict[str, str]:
    """``CUDA_VISIBLE_DEVICES`` of each service, no device twice; empty when one service may simply use what is visible."""
    devices: Sequence[str] = visible.split(",") if visible else ()
    if len(wanted) < 2 or len(devices) < sum(wanted.values()):
        return {}
    divided: dict[str, str] = {}
    begin = 0
    for name, count in wanted.items():
        divided[name] = ",".join(devices[begin : begin + count])
        begin += count
    return divided

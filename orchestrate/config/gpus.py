"""Whether the GPUs of a job are enough for its services, and whether some would be idle. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrate.config.compute import ExtraArgs, SlurmCompute
from orchestrate.config.services import VllmService
from orchestrate.config.submit import SubmitConfig

#: How an option of sbatch says the GPUs of each node: ``gpu:8``, ``gpu:h100:8``, among others.
_GRES: Final = re.compile(r"(?:^|,)(?:gres/)?gpu(?::[^:,]+)??:(\d+)(?:\(|,|$)")


def gpu_problems(config: SubmitConfig) -> list[str]:
    """Why services do not fit on the first node of their pool; empty when nothing says how many GPUs it has."""
    return [problem for pool in _pools(config) for problem in _pool_problems(pool)]


def gpu_warning(config: SubmitConfig) -> str | None:
    """What is idle in every job; None when nothing is, or nobody can tell."""
    pools = _pools(config)
    if any(service.type == "command" for service in config.services.values()):
        # Nobody knows how many GPUs a program of the user takes.
        return None
    used = sum(pool.used for pool in pools if pool.gpus is not None)
    whole = sum(pool.gpus * pool.nodes for pool in pools if pool.gpus is not None)
    return f"{whole - used} of {whole} GPUs of each job are idle: services use {used}" if whole > used else None


@dataclass(frozen=True, slots=True)
class _Pool:
    """The GPUs of each node of a pool, None where nothing says how many, and what its services need."""

    name: str | None
    is_first: bool
    gpus: int | None
    nodes: int
    wanted: dict[str, VllmService]

    @property
    def used(self) -> int:
        """GPUs that all its services use together."""
        return sum(service.gpus for service in self.wanted.values())


def _pools(config: SubmitConfig) -> list[_Pool]:
    compute = config.the_compute
    if not isinstance(compute, SlurmCompute):
        return []
    services = {name: service for name, service in config.services.items() if isinstance(service, VllmService)}
    if not compute.node_pools:
        gpus = _gpus_of_a_node(compute.gpus_per_node, compute.extra_args)
        return [_Pool(None, is_first=True, gpus=gpus, nodes=compute.nodes, wanted=services)]
    first = next(iter(compute.node_pools))
    return [
        _Pool(
            name,
            is_first=name == first,
            gpus=_gpus_of_a_node(pool.gpus_per_node, {**compute.extra_args, **pool.extra_args}),
            nodes=pool.nodes,
            wanted={key: service for key, service in services.items() if (service.node_pool or first) == name},
        )
        for name, pool in compute.node_pools.items()
    ]


def _gpus_of_a_node(said: int | None, options: ExtraArgs) -> int | None:
    found = _GRES.search(str(options.get("gres") or ""))
    return said if said is not None or found is None else int(found[1])


def _pool_problems(pool: _Pool) -> Iterator[str]:
    told = ", ".join(f"{name} {service.gpus}" for name, service in pool.wanted.items())
    where = "" if pool.name is None else f" of node pool {pool.name}"
    too_large = [name for name, service in pool.wanted.items() if pool.gpus is not None and service.gpus > pool.gpus]
    for name in too_large:
        service = pool.wanted[name]
        sizes = f"tensor_parallel_size {service.tensor_parallel_size} x pipeline_parallel_size {service.pipeline_parallel_size}"
        yield (
            f"services.{name}: needs {service.gpus} GPUs ({sizes}) and a node{where} has {pool.gpus}: type vllm serves on one "
            "node; serve it over several yourself, by type: command or as type: external"
        )
    if pool.gpus is not None and not too_large and pool.used > pool.gpus:
        yield f"services: need {pool.used} GPUs on one node{where} ({told}), which has {pool.gpus}"
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

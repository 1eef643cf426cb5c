"""Node pools of a job: which of them Slurm can allocate as one, and where in the allocation each lies. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from collector.registry import unknown_name_hint
from orchestrate.config.compute import Compute, NodePool, SlurmCompute
from orchestrate.config.services import ExternalService
from orchestrate.config.submit import SubmitConfig

#: Keys of a compute entry that each pool says for itself.
POOL_KEYS: Final = ("partition", "nodes", "gpus_per_node")


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a service runs that is not on the job's first node."""

    #: The component of a heterogeneous job; None in a plain one.
    group: int | None
    #: The node, counted in that component or in the plain job.
    node: int


def is_heterogeneous(compute: SlurmCompute) -> bool:
    """Whether the pools differ in more than their size: Slurm then needs a component for each, and allows no arrays."""
    return len({repr(_alike(pool)) for pool in compute.node_pools.values()}) > 1


def placement_of(compute: Compute, pool: str | None) -> Placement | None:
    """Where a service of ``pool`` runs; None for the first node, where the collector is. KeyError for no such pool."""
    if not isinstance(compute, SlurmCompute) or pool is None:
        return None
    index = list(compute.node_pools).index(pool)
    if index == 0:
        return None
    if is_heterogeneous(compute):
        return Placement(index, 0)
    return Placement(None, sum(before.nodes for before in list(compute.node_pools.values())[:index]))


def partitions_of(compute: SlurmCompute) -> list[str]:
    """The partitions that a job is submitted to, the collector's first; none where the site's default is meant."""
    named = [pool.partition for pool in compute.node_pools.values()] if compute.node_pools else [compute.partition]
    return list(dict.fromkeys(name for name in named if name is not None))


def placements_of(config: SubmitConfig) -> dict[str, Placement]:
    """Every service that runs on another node than the first, with its place."""
    started = {name: service for name, service in config.services.items() if not isinstance(service, ExternalService)}
    found = {name: placement_of(config.the_compute, service.node_pool) for name, service in started.items()}
    return {name: placement for name, placement in found.items() if placement is not None}


def pool_problems(data: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong between pools and the keys beside them, in plain data, so that it is told together with wrong keys."""
    compute = data.get("compute")
    entries = list(compute.items()) if isinstance(compute, Mapping) else []
    name, entry = entries[0] if len(entries) == 1 and isinstance(entries[0][1], Mapping) else ("", {})
    pools = entry.get("node_pools")
    pools = list(map(str, pools)) if isinstance(pools, Mapping) else []
    if pools:
        yield from (
            f"compute.{name}.{key}: each of node_pools says it for itself: remove one of the two"
            for key in POOL_KEYS
            if key in entry
        )
    services = data.get("services")
    for service, settings in services.items() if isinstance(services, Mapping) else ():
        pool = settings.get("node_pool") if isinstance(settings, Mapping) else None
        if not isinstance(pool, str) or pool in pools:
            continue
        if pools:
            yield f"services.{service}.node_pool: no node pool {pool!r}. {unknown_name_hint(pool, sorted(pools)).rstrip('.')}"
        else:
            yield f"services.{service}.node_pool: compute.{name} has no node_pools"


def limit_problems(computes: Mapping[str, Compute]) -> list[str]:
    """What a heterogeneous job cannot have."""
    why = "pools that differ make a heterogeneous job, and Slurm has no arrays of those to hold it; remove it"
    return [
        f"compute.{name}.max_concurrent: {why}"
        for name, compute in computes.items()
        if isinstance(compute, SlurmCompute) and is_heterogeneous(compute) and compute.max_concurrent is not None
    ]


def _alike(pool: NodePool) -> dict[str, Any]:
    return pool.model_dump(exclude={"nodes"})

"""Whether the GPUs of a job are enough for its services, and whether some would be idle. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrate.config.compute import SlurmCompute
from orchestrate.config.services import VllmService
from orchestrate.config.submit import SubmitConfig


def gpu_problems(config: SubmitConfig) -> list[str]:
    """Why services do not fit on a job's first node, where services run; empty when nothing says how many GPUs it has."""
    compute, wanted = config.the_compute, _wanted(config)
    if not isinstance(compute, SlurmCompute) or compute.gpus_per_node is None or sum(wanted.values()) <= compute.gpus_per_node:
        return []
    told = ", ".join(f"{name} {count}" for name, count in wanted.items())
    return [f"services: need {sum(wanted.values())} GPUs on one node ({told}) and gpus_per_node is {compute.gpus_per_node}"]


def gpu_warning(config: SubmitConfig) -> str | None:
    """What is idle in every job; None when nothing is, or nobody can tell."""
    compute, used = config.the_compute, sum(_wanted(config).values())
    if not isinstance(compute, SlurmCompute) or compute.gpus_per_node is None:
        return None
    if any(service.type == "command" for service in config.services.values()):
        # Nobody knows how many GPUs a program of the user takes.
        return None
    idle = compute.gpus_per_node * compute.nodes - used
    return f"{idle} of {idle + used} GPUs of each job are idle: services use {used}" if idle > 0 else None


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


def _wanted(config: SubmitConfig) -> dict[str, int]:
    return {name: service.gpus for name, service in config.services.items() if isinstance(service, VllmService)}

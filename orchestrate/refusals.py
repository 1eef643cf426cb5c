"""What Slurm means when it does not take a job, or lets it wait for ever, and what of the YAML file to change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_PARTITION: Final = "compute's partition (sinfo -s lists them)"
_SIZE: Final = "what compute asks for, its GPUs, nodes, CPUs and memory, or its partition"
#: Words of sbatch, in small letters, and what to change: asked again as it is, Slurm refuses it again.
_LASTING: Final[Mapping[str, str]] = {
    "invalid partition": _PARTITION,
    "partition does not exist": _PARTITION,
    "invalid account": "compute's account, or its partition or qos, which may not go with it",
    "invalid qos": "compute's qos",
    "user's group not permitted to use this partition": _PARTITION,
    "user not in group": _PARTITION,
    "time limit exceeds": "compute's walltime, or its partition",
    "requested time limit is invalid": "compute's walltime, or its partition",
    "node configuration is not available": _SIZE,
    "node count specification invalid": _SIZE,
    "more processors requested": _SIZE,
    "cpu count": _SIZE,
    "memory specification can not be satisfied": _SIZE,
    "invalid generic resource": "compute's GPUs, or its partition",
    "invalid feature": "the constraint in compute's sbatch options",
    "invalid constraint": "the constraint in compute's sbatch options",
    "unrecognized option": "compute's sbatch options",
    "invalid option": "compute's sbatch options",
    "invalid reservation": "the reservation in compute's sbatch options",
    "requested reservation is invalid": "the reservation in compute's sbatch options",
}
#: Why a job waits that waiting does not mend, in words. Slurm's other reasons say what they are, or pass.
_WAITS: Final[Mapping[str, str]] = {
    "PartitionConfig": "it asks for more than its partition has or allows",
    "PartitionNodeLimit": "it asks for more nodes than its partition allows",
    "PartitionTimeLimit": "its walltime is longer than its partition allows",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition starts no jobs",
    "BadConstraints": "no node has what it asks for",
    "InvalidAccount": "its account may not be used",
    "InvalidQOS": "its qos may not be used",
    "DependencyNeverSatisfied": "what it waits for cannot come any more",
    "QOSMaxWallDurationPerJobLimit": "its walltime is longer than its qos allows",
    "AssocMaxWallDurationPerJobLimit": "its walltime is longer than its account allows",
}


def what_to_change(reason: str) -> str | None:
    """What of the configuration a refusal is about; None when the same may be taken another time."""
    said = reason.lower()
    return next((change for words, change in _LASTING.items() if words in said), None)


def explained(reason: str) -> str:
    """Slurm's ``reason`` of a pending job, with what it means where its name alone does not say that it will not start."""
    meaning = _WAITS.get(reason)
    return reason if meaning is None else f"{reason}: {meaning}"

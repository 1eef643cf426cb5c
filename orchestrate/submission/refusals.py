"""What Slurm means when it does not take a job, or lets it wait for ever, and what of the YAML file to change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

_PARTITION: Final = "compute's partition (sinfo -s lists them)"
_WHO: Final = "compute's account, qos or partition, which may not go together (sacctmgr show assoc lists yours)"
_SIZE: Final = "what compute asks for, its GPUs, nodes, CPUs and memory, or its partition"
_GPUS: Final = "compute's GPUs, or its partition"
_WALLTIME: Final = "compute's walltime, or its partition (gym eval doctor compares them)"
_OPTIONS: Final = "compute's extra_args"
_LIMITS: Final = (
    "compute's account, qos or partition, or what they limit: walltime, nodes, GPUs, and jobs at once by shards and job.pack "
    "(gym eval doctor and sacctmgr show assoc tell what is allowed)"
)
#: Words of sbatch, in small letters, and what to change: asked again as it is, Slurm refuses it again. They are those of its
#: errors (Slurm 22.05 to 24.11, and of sbatch itself), and of the limits that it names in a line before. The first that fits
#: decides: a limit by its name tells more than that there is one.
_LASTING: Final[Mapping[str, str]] = {
    "maxwalldurationperjoblimit": "compute's walltime, or its qos, account or partition",
    "perjoblimit": f"{_SIZE}, qos or account",
    "pernodelimit": f"{_SIZE}, qos or account",
    "notsatisfied": f"{_SIZE}, qos or account",
    "invalid partition": _PARTITION,
    "partition does not exist": _PARTITION,
    "no partition specified": _PARTITION,
    "nodes not in this partition": f"{_PARTITION}, or the nodes in its extra_args",
    "multiple partition job request": f"{_PARTITION} to one, or its account",
    "invalid account": "compute's account, or its partition or qos, which may not go with it",
    "invalid qos": "compute's qos",
    "qos usage threshold": "compute's qos or account",
    "account not permitted": _WHO,
    "qos not permitted": _WHO,
    "not permitted to use this partition": _PARTITION,
    "user not in group": _PARTITION,
    "access/permission denied": _WHO,
    "time limit exceeds": _WALLTIME,
    "time limit is invalid": _WALLTIME,
    "time limit specification": _WALLTIME,
    "invalid time": _WALLTIME,
    "node configuration is not available": _SIZE,
    "node count specification invalid": _SIZE,
    "task count specification invalid": _SIZE,
    "job size specification": _SIZE,
    "more processors requested": _SIZE,
    "more tasks than available processors": _SIZE,
    "cpu count": _SIZE,
    "memory specification can not be satisfied": _SIZE,
    "memory required by task is not available": _SIZE,
    "generic resource": _GPUS,
    "invalid gres": _GPUS,
    "gres option unsupported": _GPUS,
    "invalid trackable resource": _GPUS,
    "invalid feature": f"the constraint in {_OPTIONS}",
    "invalid preferred feature": f"the constraint in {_OPTIONS}",
    "invalid constraint": f"the constraint in {_OPTIONS}",
    "invalid reservation": f"the reservation in {_OPTIONS}",
    "requested reservation is invalid": f"the reservation in {_OPTIONS}",
    "denied to requested reservation": f"the reservation in {_OPTIONS}",
    "invalid wckey": f"the wckey in {_OPTIONS}",
    "invalid license": f"the licenses in {_OPTIONS}",
    "burst buffer": f"the burst buffer in {_OPTIONS}",
    "unrecognized option": _OPTIONS,
    "invalid option": _OPTIONS,
    "invalid job array specification": "the number of shards, or job.pack",
    "pathname of a file": "job.output_path to a shorter one",
    "violates accounting/qos policy": _LIMITS,
}
#: Limits on how many jobs may wait or run: they pass when jobs end, and at once when fewer are asked for.
_COUNTS: Final = ("submitjob", "job submit limit exceeded")
#: Why a job waits, in words: first what waiting does not mend, then what passes. Slurm's other reasons say what they are.
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
    "JobHeldUser": "somebody holds it (scontrol release lets it go)",
    "JobHeldAdmin": "an administrator holds it",
    "BeginTime": "it starts at a later time; a requeued job is held back for two minutes",
    "JobArrayTaskLimit": "as many of its array run as compute's max_concurrent allows",
    "Priority": "others are before it",
    "Resources": "what it asks for is taken by others",
    "Dependency": "it starts when others have ended",
}


def what_to_do(reasons: Iterable[str], again: str = "run the same command again") -> str:
    """What to do about refusals of sbatch, so that ``again``, the words for a command, goes on: a sentence for people."""
    reasons = list(reasons)
    changes = list(dict.fromkeys(filter(None, map(_what_to_change, reasons))))
    steps = [f"change {' and '.join(changes)}"] if changes else []
    if any(map(_is_too_many, reasons)):
        steps.append("wait until some of your jobs have ended (squeue --me), or ask for fewer by job.pack or another qos")
    last = f"{again}: it submits what is missing."
    told = f"{', and '.join(steps)}, then {last}" if steps else last
    return told[0].upper() + told[1:]


def _what_to_change(reason: str) -> str | None:
    """What of the configuration a refusal is about; None when the same may be taken another time."""
    said = reason.lower()
    return None if _is_too_many(reason) else next((change for words, change in _LASTING.items() if words in said), None)


def _is_too_many(reason: str) -> bool:
    return any(words in reason.lower() for words in _COUNTS)


def explained(reason: str) -> str:
    """Slurm's ``reason`` of a pending job, with what it means where its name alone does not say whether it will start."""
    meaning = _WAITS.get(reason)
    return reason if meaning is None else f"{reason}: {meaning}"

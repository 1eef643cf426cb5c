"""Where jobs run: a Slurm cluster or this machine."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field

from collector.setting_kinds import Count
from collector.settings import StrictModel
from orchestrate.config.values import FlagName, FlagValue, Line, OptionalLine, Walltime

#: Options of sbatch that the submission itself sets; giving them twice would break resuming or finding the job.
OWN_FLAGS = frozenset(
    {"account", "cpus-per-task", "gpus-per-node", "mem", "nodes", "partition", "qos", "time"}
    | {"array", "chdir", "error", "job-name", "no-requeue", "ntasks", "open-mode", "output", "parsable", "requeue", "signal"}
    | {"test-only", "wait", "wrap"}
)


def _check_own(value: str) -> str:
    if value in OWN_FLAGS:
        raise ValueError(f"{value!r} is set by the submission: it has a key of its own, or resuming depends on it")
    return value


ExtraArgs: TypeAlias = dict[Annotated[FlagName, AfterValidator(_check_own)], FlagValue]


class NodePool(StrictModel):
    """Equal nodes of a job. The collector runs on the first node of the first pool."""

    partition: OptionalLine = None
    nodes: Count = 1
    ntasks_per_node: Count = 1
    gpus_per_node: Count | None = None
    #: As in the compute entry, and over what stands there.
    extra_args: ExtraArgs = Field(default_factory=dict)


class SlurmCompute(StrictModel):
    """One job per shard, submitted as an array per benchmark."""

    type: Literal["slurm"]
    #: The cluster's login node as ssh knows it; everything runs there by the same program. null: jobs are submitted from here.
    hostname: OptionalLine = None
    #: The program on the login node, as a shell line.
    remote_program: Line = "gym"
    #: Where it starts there: relative paths of the configuration begin here. null: the home directory.
    remote_dir: OptionalLine = None
    account: OptionalLine = None
    partition: OptionalLine = None
    qos: OptionalLine = None
    walltime: Walltime
    nodes: Count = 1
    cpus_per_task: Count | None = None
    mem: OptionalLine = None
    gpus_per_node: Count | None = None
    #: Jobs of one array that run at once; null: as many as the scheduler lets.
    max_concurrent: Count | None = None
    #: Long options for sbatch without their dashes; null, "" and false leave one out, true gives it without a value.
    extra_args: ExtraArgs = Field(default_factory=dict)
    #: Several kinds of nodes in each job, by name; they say partition, nodes and gpus_per_node in place of the keys above.
    node_pools: dict[Line, NodePool] = Field(default_factory=dict)
    #: The interpreter on the nodes; null: the one that submits.
    python: OptionalLine = None
    #: Shell lines that run in the job before anything else; a line that fails ends the job.
    setup: list[str] = Field(default_factory=list)


class LocalCompute(StrictModel):
    """Processes on this machine that outlive the command that started them."""

    type: Literal["local"]
    max_concurrent: Count = 1
    #: Jobs that may exist at once. All are started, and a waiting one is a process of about 30 MB.
    max_processes: Count = 64


Compute: TypeAlias = Annotated[SlurmCompute | LocalCompute, Field(discriminator="type")]

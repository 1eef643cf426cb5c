"""The settings of a private Slurm cluster and the configuration files they lead to; pure text, nothing is started."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CLUSTER = "private"
DATABASE = "slurm_acct_db"
# Longer unix socket paths are refused by the kernel (sun_path holds 108 bytes with the closing NUL).
MAX_SOCKET_PATH = 107


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the daemons of one cluster listen, all on 127.0.0.1."""

    controller: int
    accounting: int
    database: int
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """What one cluster looks like: equal virtual nodes n1, n2, ... in the partitions ``batch`` and ``high``."""

    directory: Path
    host: str
    ports: Ports
    cpus: int = 4
    accounting: bool = False
    grace_s: int = 0
    max_array: int = 1001
    kill_wait_s: int = 5

    @property
    def conf(self) -> Path:
        return self.directory / "slurm.conf"

    @property
    def munge_socket(self) -> Path:
        return self.directory / "munge.sock"

    @property
    def munge_key(self) -> Path:
        return self.directory / "munge.key"

    @property
    def database_socket(self) -> Path:
        return self.directory / "db.sock"

    @property
    def nodes(self) -> list[str]:
        return [f"n{i}" for i in range(1, len(self.ports.nodes) + 1)]

    def log(self, daemon: str) -> Path:
        return self.directory / "log" / f"{daemon}.log"


def slurm_conf(settings: ClusterSettings) -> str:
    """The text of slurm.conf."""
    top, ports = settings.directory, settings.ports
    lines = [
        f"ClusterName={CLUSTER}",
        f"SlurmctldHost={settings.host}(127.0.0.1)",
        "SlurmUser=root",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        f"AuthInfo=socket={settings.munge_socket}",
        f"SlurmctldPort={ports.controller}",
        f"StateSaveLocation={top}/state",
        f"SlurmdSpoolDir={top}/spool/%n",
        f"SlurmctldPidFile={top}/run/slurmctld.pid",
        f"SlurmdPidFile={top}/run/%n.pid",
        # linuxproc and no task plug-in: neither needs control groups, which a container may not offer.
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "SwitchType=switch/none",
        "MpiDefault=none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        # A test waits for the scheduler; a real site must not ask this often.
        "SchedulerType=sched/backfill",
        "SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0",
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        # A node set down by hand stays down; one that was silent comes back by itself.
        "ReturnToService=1",
        f"KillWait={settings.kill_wait_s}",
        f"MaxArraySize={settings.max_array}",
        # More CPUs than the machine has are taken at their word.
        "SlurmdParameters=config_overrides",
        *_accounting_lines(settings),
        *(
            f"NodeName={name} NodeHostname={settings.host} NodeAddr=127.0.0.1 Port={port} CPUs={settings.cpus} RealMemory=4000"
            for name, port in zip(settings.nodes, ports.nodes, strict=True)
        ),
        f"PartitionName=batch Nodes=ALL Default=YES State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime={settings.grace_s}",
        "PartitionName=high Nodes=ALL State=UP PriorityTier=10 PreemptMode=OFF",
    ]
    return "\n".join(lines) + "\n"


def _accounting_lines(settings: ClusterSettings) -> list[str]:
    if not settings.accounting:
        return ["AccountingStorageType=accounting_storage/none", "JobAcctGatherType=jobacct_gather/none"]
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePort={settings.ports.accounting}",
        # With munge this is no password but the path of the socket; AuthInfo does not reach this connection.
        f"AccountingStoragePass={settings.munge_socket}",
        "JobAcctGatherType=jobacct_gather/linux",
        "JobAcctGatherFrequency=5",
    ]


def slurmdbd_conf(settings: ClusterSettings) -> str:
    """The text of slurmdbd.conf; slurmdbd looks for it beside slurm.conf."""
    lines = [
        "AuthType=auth/munge",
        f"AuthInfo=socket={settings.munge_socket}",
        f"DbdHost={settings.host}",
        "DbdAddr=127.0.0.1",
        f"DbdPort={settings.ports.accounting}",
        "SlurmUser=root",
        "StorageType=accounting_storage/mysql",
        # An address and not "localhost", which the client library takes for the socket of the machine's own database.
        "StorageHost=127.0.0.1",
        f"StoragePort={settings.ports.database}",
        "StorageUser=slurm",
        "StoragePass=slurm",
        f"StorageLoc={DATABASE}",
        f"PidFile={settings.directory}/run/slurmdbd.pid",
    ]
    return "\n".join(lines) + "\n"

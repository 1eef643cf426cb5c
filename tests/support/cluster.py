"""A private, real Slurm on one machine: ``SlurmCluster`` boots it, drives it and ends every process of it.

Everything lives in one directory and on ports of its own, the authentication daemon included, so several clusters can
run at once. The preemptible partition is ``batch`` (the default one); a job in ``high`` evicts and requeues its jobs.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from tests.support.cluster_accounting import COMMANDS as ACCOUNTING_COMMANDS
from tests.support.cluster_accounting import answers, start_accounting
from tests.support.cluster_settings import MAX_SOCKET_PATH, ClusterSettings, Ports, slurm_conf
from tests.support.processes import SEARCH_PATH, free_ports, kill_marked, missing_commands, start_daemon, wait_for

T = TypeVar("T")
COMMANDS = ["slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "munged", "setpriv"]
CONTROL_GROUPS = Path("/sys/fs/cgroup")
#: Seconds after which a requeued job may start: more than the one second that credentials are told apart by.
_CREDENTIAL_S = 2.0


def missing_requirements(*, accounting: bool = False) -> list[str]:
    """What this machine lacks for a cluster, in words; empty when one can be started."""
    lacks = missing_commands(COMMANDS + ACCOUNTING_COMMANDS * accounting)
    # slurmd does not start without it, although no part of this cluster uses control groups.
    if not CONTROL_GROUPS.is_mount():
        lacks.insert(0, f"a mounted {CONTROL_GROUPS}")
    return lacks if os.geteuid() == 0 else ["root", *lacks]


class QueuedJob(NamedTuple):
    """One line of squeue; ``job_id`` is ``12``, ``12_3`` or ``12_[4-9]``."""

    job_id: str
    name: str
    state: str
    reason: str
    nodes: str
    partition: str


class Preemption:
    """The job that took nodes away from ``batch``; ``release`` gives them back. Also a context manager."""

    def __init__(self, cluster: SlurmCluster, job_id: str) -> None:
        self.cluster = cluster
        self.job_id = job_id

    def release(self) -> None:
        """End the blocking job and wait until its nodes are free."""
        self.cluster.run("scancel", self.job_id)
        self.cluster.wait_for(lambda: all(job.job_id != self.job_id for job in self.cluster.squeue()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


class SlurmCluster:
    """A cluster of virtual nodes n1, n2, ...; needs root and ``missing_requirements() == []``."""

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 4,
        cpus: int = 4,
        accounting: bool = False,
        grace_s: int = 0,
        max_array: int = 1001,
        kill_wait_s: int = 5,
    ) -> None:
        ports = free_ports(nodes + 3)
        self.settings = ClusterSettings(
            directory=directory,
            host=socket.gethostname().split(".")[0],
            ports=Ports(*ports[:3], nodes=tuple(ports[3:])),
            cpus=cpus,
            accounting=accounting,
            grace_s=grace_s,
            max_array=max_array,
            kill_wait_s=kill_wait_s,
        )
        self.env = {"SLURM_CONF": str(self.settings.conf)}
        self._mark = f"SLURM_CONF={self.settings.conf}"
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    # Life of the cluster

    def start(self) -> None:
        """Boot and return when all nodes are idle; when that does not happen nothing is left running."""
        try:
            self._prepare()
            self._start_munge()
            if self.settings.accounting:
                self._daemons |= start_accounting(self.settings, self.env, self.run)
            self.start_controller()
            for node in self.settings.nodes:
                self._start_node(node)
            self.wait_for(self._all_idle)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every daemon and every process of every job; may be called in any state and twice."""
        kill_marked(self._mark)
        for process in self._daemons.values():
            process.wait()
        self._daemons.clear()

    def reset(self) -> None:
        """Bring back what a new cluster offers: a controller, no jobs, all nodes idle."""
        if self._daemons["slurmctld"].poll() is not None:
            self.start_controller()
        for node in self.settings.nodes:
            if self._daemons[node].poll() is not None:
                self._start_node(node)
        for job in self.squeue():
            self.run("scancel", job.job_id)
        self.wait_for(lambda: not self.squeue())
        self.wait_for(self._resumed)

    def stop_controller(self) -> None:
        """End slurmctld as an administrator would; jobs go on, every client command fails."""
        self._daemons["slurmctld"].terminate()
        self._daemons["slurmctld"].wait(30)

    def start_controller(self) -> None:
        """Start slurmctld on the saved state and wait until it answers."""
        self._daemons["slurmctld"] = start_daemon(["slurmctld", "-D"], env=self.env, log=self.settings.log("slurmctld"))
        self.wait_for(self._controller_answers)

    def kill_node(self, node: str) -> None:
        """Lose a node: its slurmd and all job processes on it are gone at once, and nobody tells the controller."""
        kill_marked(self._mark, f"SLURMD_NODENAME={node}")
        self._daemons[node].wait()

    def set_node(self, node: str, state: str) -> None:
        """Set a node's state as an administrator would: down, drain, resume."""
        self.run("scontrol", "update", f"nodename={node}", f"state={state}", "reason=test")

    # What a test does with it

    def run(self, *arguments: str, timeout_s: float = 30) -> str:
        """The standard output of a Slurm command; AssertionError with its own words when it fails."""
        done = subprocess.run(
            arguments,
            env={**os.environ, **self.env, "PATH": SEARCH_PATH},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            raise AssertionError(f"{' '.join(arguments)}: exit {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def submit(self, command: str, *options: str) -> str:
        """Submit a shell command as a batch job, output in the cluster's directory; its id."""
        output = f"--output={self.settings.directory}/job-%A-%a.out"
        answer = self.run("sbatch", "--parsable", output, *options, f"--wrap={command}")
        return answer.strip().split(";")[0]

    def squeue(self, *options: str) -> list[QueuedJob]:
        """The jobs that the controller still queues, runs or completes."""
        lines = self.run("squeue", "-h", "-o", "%i|%j|%T|%r|%N|%P", *options).splitlines()
        return [QueuedJob(*line.split("|")) for line in lines]

    def job(self, job_id: str) -> dict[str, str]:
        """What ``scontrol show job`` tells of one job, e.g. JobState, Restarts, ExitCode."""
        words = self.run("scontrol", "-o", "show", "job", job_id).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def state(self, job_id: str) -> str:
        """PENDING, RUNNING, COMPLETED, ...: as long as the controller remembers the job."""
        return self.job(job_id)["JobState"]

    def node_states(self) -> dict[str, str]:
        """The state of every node, in lower case."""
        lines = self.run("sinfo", "-h", "-N", "-p", "batch", "-o", "%N %T").splitlines()
        return {line.split()[0]: line.split()[1] for line in lines}

    def wait_for(self, predicate: Callable[[], T], timeout_s: float = 30) -> T:
        """The first true value of ``predicate``; AssertionError with the queue and the controller's log otherwise."""
        return wait_for(predicate, timeout_s, explain=self._explain)

    def preempt(self, nodes: int | str) -> Preemption:
        """Take so many nodes (or the named ones, ``n1,n3``) away from ``batch``; returns when they were given up."""
        where = f"--nodes={nodes}" if isinstance(nodes, int) else f"--nodelist={nodes}"
        job_id = self.submit("sleep 600", "--partition=high", "--exclusive", "--job-name=blocker", where)
        self.wait_for(lambda: self.state(job_id) == "RUNNING")
        return Preemption(self, job_id)

    def start_now(self, job_id: str) -> None:
        """Let a requeued job start at once; Slurm holds it back for two minutes otherwise."""
        self.wait_for(lambda: self.state(job_id) == "PENDING")
        # A node refuses a job's new credential ("revoked") when it bears the second in which the old one was revoked.
        time.sleep(_CREDENTIAL_S)
        self.wait_for(lambda: self.let_start(job_id))

    def let_start(self, job_id: str) -> bool:
        """Lift the wait of a requeued job; False while Slurm has not heard of the job from its database."""
        try:
            self.run("scontrol", "update", f"jobid={job_id}", "starttime=now")
        except AssertionError as error:
            if "try again" not in str(error):
                raise
            return False
        return True

    # Inside

    def _prepare(self) -> None:
        directory = self.settings.directory
        longest = max(len(str(path)) for path in (self.settings.munge_socket, self.settings.database_socket))
        if longest > MAX_SOCKET_PATH:
            raise ValueError(f"{directory}: too long for the sockets of a cluster")
        for name in ("state", "spool", "log", "run"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        self.settings.conf.write_text(slurm_conf(self.settings), encoding="utf-8")

    def _start_munge(self) -> None:
        settings = self.settings
        settings.munge_key.touch(mode=0o600)
        settings.munge_key.write_bytes(secrets.token_bytes(128))
        top = settings.directory
        files = [f"--pid-file={top}/run/munged.pid", f"--seed-file={top}/run/munged.seed", f"--log-file={top}/log/munged.log"]
        where = [f"--key-file={settings.munge_key}", f"--socket={settings.munge_socket}"]
        # --force: the folders of a test are not as closed as munged wants them.
        command = ["munged", "--foreground", "--force", "--num-threads=10", *where, *files]
        self._daemons["munged"] = start_daemon(command, env=self.env, log=settings.log("munged-output"))
        self.wait_for(settings.munge_socket.exists)

    def _start_node(self, node: str) -> None:
        # The step daemons inherit the name, which Slurm gives to the jobs only; kill_node finds them all by it.
        env = self.env | {"SLURMD_NODENAME": node}
        self._daemons[node] = start_daemon(["slurmd", "-D", "-N", node], env=env, log=self.settings.log(node))

    def _controller_answers(self) -> bool:
        self._refuse_ended("slurmctld")
        return answers(["scontrol", "show", "config"], self.env)

    def _resumed(self) -> bool:
        # A controller that has just restarted refuses to resume a node it has not heard of yet: ask until it does.
        for node, state in self.node_states().items():
            if "down" in state or "drain" in state:
                answers(["scontrol", "update", f"nodename={node}", "state=resume"], self.env)
        return self._all_idle()

    def _refuse_ended(self, *needed: str) -> None:
        if set(self._ended()) & set(needed):
            raise AssertionError(self._explain())

    def _all_idle(self) -> bool:
        self._refuse_ended(*self._daemons)
        return set(self.node_states().values()) == {"idle"}

    def _ended(self) -> list[str]:
        return [name for name, process in self._daemons.items() if process.poll() is not None]

    def _explain(self) -> str:
        ended = self._ended()
        logs = [self.settings.log(name) for name in [*ended, "slurmctld"]]
        tails = [f"{log}:\n{log.read_text(encoding='utf-8', errors='replace')[-2000:]}" for log in logs if log.exists()]
        return "\n".join([f"ended daemons: {ended}", *tails])

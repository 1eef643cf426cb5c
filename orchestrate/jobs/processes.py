"""Whether a process of this machine is the one that was started: its number alone is given out again."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

from orchestrate.runs.directory import RunDir
from orchestrate.scheduler import JobFact, Knowledge, QueuedName


def started_at(pid: int) -> int | None:
    """When the kernel started the process, in clock ticks since boot; None when there is none or it is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in parentheses, and may itself contain any of them.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def local_job_id(pid: int) -> str:
    """``<host>:<pid>:<start>`` of a living process; start is 0 when it ended already."""
    return f"{socket.gethostname()}:{pid}:{started_at(pid) or 0}"


class ProcessTable:
    """The scheduler of local jobs: the kernel, and the marks of those that have had one of the run's slots."""

    def __init__(self, run: RunDir) -> None:
        self._run = run

    def ask(self, jobs: Mapping[str, Iterable[str]], *, limit_s: float | None = None) -> dict[str, JobFact]:  # noqa: ARG002 - the kernel answers at once
        """Whether each process still runs; those of another machine cannot be asked about."""
        return {job_id: self._fact(job_id) for ids in jobs.values() for job_id in ids}

    def find(self, name: str) -> QueuedName:
        """The process with ``name`` among its arguments."""
        marker = b"\0" + name.encode() + b"\0"
        for directory in Path("/proc").iterdir():
            if directory.name.isdigit() and marker in _command_line(directory):
                return QueuedName(Knowledge.KNOWN, local_job_id(int(directory.name)))
        return QueuedName(Knowledge.NOT_THERE)

    def _fact(self, job_id: str) -> JobFact:
        host, pid, start = job_id.rsplit(":", 2)
        if host != socket.gethostname():
            return JobFact(Knowledge.COULD_NOT_ASK, detail=f"the process was started on {host}")
        if started_at(int(pid)) != int(start):
            return JobFact(Knowledge.KNOWN, "GONE")
        if self._run.begun(job_id).exists():
            return JobFact(Knowledge.KNOWN, "RUNNING")
        return JobFact(Knowledge.KNOWN, "PENDING", "waits for a slot (max_concurrent)")


def _command_line(directory: Path) -> bytes:
    try:
        return (directory / "cmdline").read_bytes()
    except OSError:
        return b""

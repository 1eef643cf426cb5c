"""What a whole process costs, its children included."""

from __future__ import annotations

import multiprocessing
import os
import shlex
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class Cost(NamedTuple):
    """Wall and CPU seconds; the peak is that of the largest of its processes."""

    wall_s: float
    cpu_s: float
    peak_mb: float


def apart(work: Callable[..., object], *arguments: object, **named: object) -> None:
    """Do ``work`` in a process of its own: the peak of whatever is started afterwards begins at what its parent holds."""
    process = multiprocessing.get_context("fork").Process(target=work, args=arguments, kwargs=named)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"the work before the measurement ended with {process.exitcode}")


def measure(command: Sequence[str], output: Path | str = os.devnull, env: Mapping[str, str] | None = None) -> Cost:
    """The cost of ``command``, whose words go to ``output``. Raises SystemExit when it fails."""
    begun = time.perf_counter()
    actions = [
        (os.POSIX_SPAWN_OPEN, 1, str(output), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    pid = os.posix_spawnp(command[0], command, {**os.environ, **(env or {})}, file_actions=actions)
    _, status, usage = os.wait4(pid, 0)
    wall = time.perf_counter() - begun
    if status:
        raise SystemExit(f"ended with {os.waitstatus_to_exitcode(status)}: {shlex.join(command)}")
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def cpu_of(pid: int) -> float:
    """CPU seconds of a process that goes on."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

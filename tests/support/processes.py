"""Daemons of a test: started in the foreground, found by an environment variable, and ended to the last one."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
# Daemons live here, and the PATH of an unprivileged shell may leave it out.
SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])
# Below the kernel's ephemeral ports (32768 and up), where an outgoing connection could take a port first.
_FIRST_PORT, _BLOCKS, _BLOCK_SIZE = 20_000, 200, 60


def wait_for(predicate: Callable[[], T], timeout_s: float = 30, *, explain: Callable[[], str] = str) -> T:
    """The first true value of ``predicate``; AssertionError with the text of ``explain`` after ``timeout_s`` seconds."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not true within {timeout_s:g} s: {explain()}")
        time.sleep(0.05)


def missing_commands(names: Iterable[str]) -> list[str]:
    """Those of the commands that are not installed."""
    return [name for name in names if shutil.which(name, path=SEARCH_PATH) is None]


def start_daemon(arguments: list[str], *, env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """A process in the foreground of its own session that dies with this one, its output appended to ``log``."""
    # setpriv asks the kernel for the death signal after the fork, which preexec_fn cannot do safely beside threads.
    command = ["setpriv", "--pdeathsig", "KILL", "--", *arguments]
    full_env = {**os.environ, **env, "PATH": SEARCH_PATH}
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            env=full_env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def marked_pids(*marks: str) -> list[int]:
    """Every living process but this one whose environment at its start held all of the ``NAME=value`` marks."""
    wanted = {mark.encode() for mark in marks}
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            # A process may end while it is looked at; a zombie's environment is empty.
            with suppress(OSError):
                if wanted <= set((entry / "environ").read_bytes().split(b"\0")):
                    found.append(int(entry.name))
    return found


def kill_marked(*marks: str, timeout_s: float = 20) -> None:
    """SIGKILL all processes with the marks until none is left, children of dying ones included."""

    def gone() -> bool:
        pids = marked_pids(*marks)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not pids

    wait_for(gone, timeout_s, explain=lambda: f"processes {marked_pids(*marks)} survive SIGKILL")


def free_ports(number: int) -> list[int]:
    """So many free TCP ports of 127.0.0.1, from a block that other processes look into last."""
    for block in count(os.getpid()):
        first = _FIRST_PORT + block % _BLOCKS * _BLOCK_SIZE
        ports = [port for port in range(first, first + _BLOCK_SIZE) if _is_free(port)]
        if len(ports) >= number:
            return ports[:number]
    raise AssertionError("count() does not end")


def _is_free(port: int) -> bool:
    # All addresses: Slurm's daemons listen on every one of them.
    with socket.socket() as probe, suppress(OSError):
        probe.bind(("", port))
        return True
    return False


def heed_interrupts() -> None:
    """For ``preexec_fn``: a shell in the background starts its commands with SIGINT ignored, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)

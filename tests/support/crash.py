"""Kills this process just before its n-th disk call: the named calls of ``os`` that change a disk, counted in order."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

#: Calls that change what a disk holds. ``open`` counts when it may create or truncate.
DISK_CALLS = (
    "write",
    "pwrite",
    "pwritev",
    "fsync",
    "fdatasync",
    "ftruncate",
    "replace",
    "rename",
    "link",
    "unlink",
    "mkdir",
    "open",
    "copy_file_range",
)
_CREATES = os.O_CREAT | os.O_TRUNC


class DiskCalls:
    """Counts disk calls; at the ``fatal``-th (from 1) the process gets ``sent`` before it is made. 0 only counts."""

    def __init__(self, fatal: int = 0, *, sent: signal.Signals = signal.SIGKILL) -> None:
        self.fatal = fatal
        self.sent = sent
        self.count = 0

    def install(self) -> None:
        for name in DISK_CALLS:
            setattr(os, name, self._wrap(name, getattr(os, name)))

    def _wrap(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if name != "open" or (len(args) > 1 and args[1] & _CREATES):
                self.count += 1
                if self.count == self.fatal:
                    # To this thread, so that it gets no further itself: the call is made after a SIGCONT, or never.
                    signal.pthread_kill(threading.get_ident(), self.sent)
            return call(*args, **kwargs)

        return wrapped


def run_in_fork(work: Callable[[], None], fatal: int) -> tuple[int, int]:
    """Run ``work`` in a forked child that dies at disk call ``fatal``; (wait status, disk calls it made if it lived)."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(read_end)
            calls = DiskCalls(fatal)
            real_write = os.write
            calls.install()
            work()
            real_write(write_end, str(calls.count).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(write_end)
    said = os.read(read_end, 64)
    os.close(read_end)
    return os.waitpid(child, 0)[1], int(said or b"0")

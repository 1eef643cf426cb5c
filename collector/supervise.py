"""A process between a job and one of its services or commands, so that this never outlives the job, however the job ends.

``python supervise.py GRACE_S COMMAND...``: runs the command in a session of its own and ends with its exit code. When standard
input closes, which the kernel does for a job killed with SIGKILL too, the whole process group of the command gets SIGTERM and
after the grace SIGKILL. Anything written to standard input before that is SIGTERM alone. Imports the standard library only: it
starts in 20 ms and must not fail for a reason of ours.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main(argv: list[str]) -> int:
    """Run the command and return its exit code, 128 plus the number of a signal that ended it."""
    grace_s, command = float(argv[0]), argv[1:]
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What leaves the command's process group and loses its parent becomes a child of this process instead of init's.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_prepare_child,  # noqa: PLW1509 - single-threaded until the next statement
        )
    except OSError as error:
        sys.stderr.write(f"cannot start {command[0]!r}: {error.strerror}\n")
        return 127
    threading.Thread(target=_wait_for_owner, args=(child, grace_s), daemon=True).start()
    code = _wait_for(child)
    # What the command started and left behind belongs to it too.
    _signal_group(child.pid, signal.SIGKILL)
    _end_orphans()
    return 128 - code if code < 0 else code


def _prepare_child() -> None:
    # SIGKILL of this supervisor reaches the command itself at least; its children are left to the scheduler then.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _wait_for(child: subprocess.Popen[bytes]) -> int:
    """Its exit code. Orphans that were taken in are reaped meanwhile."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child.pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            return child.returncode


def _end_orphans() -> None:
    """SIGKILL to what is left, generation by generation: the children of one that is killed become ours."""
    while orphans := _children():
        for pid in orphans:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in orphans:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _children() -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        # A process may end while it is looked at.
        with suppress(OSError):
            # Behind the program's name, which may hold anything, come state and parent.
            if entry.name.isdecimal() and int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1]) == os.getpid():
                found.append(int(entry.name))
    return found


def _wait_for_owner(child: subprocess.Popen[bytes], grace_s: float) -> None:
    while os.read(0, 1024):
        _signal_group(child.pid, signal.SIGTERM)
    _signal_group(child.pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline and child.returncode is None:
        time.sleep(0.05)
    _signal_group(child.pid, signal.SIGKILL)


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

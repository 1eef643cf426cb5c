"""A terminal of a given width for a program that a test runs."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence


def printed_on_terminal(command: Sequence[str], *, columns: int, env: Mapping[str, str]) -> list[str]:
    """The lines that ``command`` prints when its standard output is a terminal of ``columns``; AssertionError if it fails."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    # A shell's own variable would be believed before the terminal is asked.
    environment = {key: value for key, value in env.items() if key not in {"COLUMNS", "LINES"}}
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE, env=environment) as program:
        os.close(theirs)
        said = b"".join(iter(lambda: _read(ours), b""))
        _, errors = program.communicate(timeout=30)
    os.close(ours)
    assert program.returncode == 0, errors.decode()
    return said.decode().splitlines()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:
        # EIO: nobody holds the other end any more.
        return b""

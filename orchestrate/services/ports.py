"""Ports for services: taken from where the kernel gives none to others, and looked at again when a service ends.

Between the choice of a port and the moment when a service listens on it lie seconds, with a large model minutes. A port of the
kernel's own range may be given to any connection of the node meanwhile. As a program it prints one: ``python ports.py``; asked
for a certain one, ``python ports.py 8000``, it prints that, or 0 where something listens on it. Imports the standard library
only, since it runs on the other nodes of a job.
"""

from __future__ import annotations

import random
import socket
import sys
from pathlib import Path

_KERNELS = Path("/proc/sys/net/ipv4/ip_local_port_range")
#: Below are the ports of well-known services.
_LOWEST = 10_000
_TRIES = 100


def free_port() -> int:
    """A port that nothing listens on at this moment, on any address of this machine."""
    end = _kernels_first()
    if end > _LOWEST:
        for _ in range(_TRIES):
            port = random.randrange(_LOWEST, end)  # noqa: S311 - it is no secret
            if not is_taken(port):
                return port
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def is_taken(port: int) -> bool:
    """Whether something holds the port on an address of this machine."""
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return True
    return False


def is_listened_on(port: int) -> bool:
    """Whether a server listens on the port. Unlike ``is_taken`` it passes over what closed connections leave for a minute."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except PermissionError:
            # A port below 1024 says nothing to those who may not bind it; the service itself may be allowed to.
            return False
        except OSError:
            return True
    return False


def _asked_for(port: int) -> int:
    return 0 if is_listened_on(port) else port


def _kernels_first() -> int:
    try:
        return int(_KERNELS.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0


if __name__ == "__main__":
    print(_asked_for(int(sys.argv[1])) if sys.argv[1:] else free_port())  # noqa: T201 - what it is for

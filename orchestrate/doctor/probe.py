"""What two processes see of one directory: run as ``python -m orchestrate.doctor.probe DIR RANK RANKS``, once on each node.

Rank 0 takes a lock and rank 1 tries to; then both add lines to one file, and rank 0 replaces a file while rank 1 reads it.
Each prints one line of JSON. A partner that never comes is waited for half a minute.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
import time
from pathlib import Path
from typing import Any, Final

from collector import durable
from collector.shard.lock_backends import hold_for

#: Lines that each process adds, long enough that two writes would show a seam.
LINES: Final = 200
_WIDTH: Final = 500
_REPLACEMENTS: Final = 100
_PATIENCE_S: Final = 30.0


class PartnerMissingError(Exception):
    """The other process did not get as far in time."""


def main(argv: list[str]) -> int:
    """Look, and print what was seen."""
    directory, rank, ranks = Path(argv[0]), int(argv[1]), int(argv[2])
    seen: dict[str, Any] = {
        "rank": rank,
        "host": socket.gethostname(),
        "time": time.time(),
        "python": platform.python_version(),
    }
    node = os.environ.get("SLURMD_NODENAME")
    seen["host"] = node or seen["host"]
    try:
        seen |= _alone(directory, rank) if ranks < 2 else _first(directory) if rank == 0 else _second(directory)
    except (OSError, NotImplementedError, PartnerMissingError) as error:
        seen["trouble"] = f"{type(error).__name__}: {error}"
    sys.stdout.write(json.dumps(seen) + "\n")
    return 0


def _alone(directory: Path, rank: int) -> dict[str, Any]:
    hold = hold_for(directory / "lock")
    is_taken = hold.acquire()
    if is_taken:
        hold.release()
    durable.publish(directory / f"published-{rank}", b"new")
    return {"backend": hold.backend.value, "lock": is_taken}


def _first(directory: Path) -> dict[str, Any]:
    hold = hold_for(directory / "lock")
    if not hold.acquire():
        return {"backend": hold.backend.value, "lock": False}
    _tell(directory, "held")
    _wait_for(directory, "tried")
    hold.release()
    _tell(directory, "released")
    durable.publish(directory / "replaced", _content(0))
    _tell(directory, "readable")
    for number in range(_REPLACEMENTS):
        durable.publish(directory / "replaced", _content(number))
    _tell(directory, "stopped")
    _append(directory, 0)
    _wait_for(directory, "appended")
    lines = (directory / "appended.jsonl").read_bytes().split(b"\n")[:-1]
    whole = sum(len(line) == _WIDTH and len(set(line)) == 1 for line in lines)
    return {"backend": hold.backend.value, "lock": True, "lines": len(lines), "whole": whole}


def _second(directory: Path) -> dict[str, Any]:
    _wait_for(directory, "held")
    hold = hold_for(directory / "lock")
    was_free = hold.acquire()
    if was_free:
        hold.release()
    _tell(directory, "tried")
    _wait_for(directory, "released")
    is_free_again = _becomes_free(directory)
    _wait_for(directory, "readable")
    torn, missing = _read_until_stopped(directory)
    _append(directory, 1)
    _tell(directory, "appended")
    return {"backend": hold.backend.value, "excluded": not was_free, "free": is_free_again, "torn": torn, "missing": missing}


def _becomes_free(directory: Path) -> bool:
    hold = hold_for(directory / "lock")
    deadline = time.monotonic() + _PATIENCE_S / 3
    while time.monotonic() < deadline:
        if hold.acquire():
            hold.release()
            return True
        time.sleep(0.1)
    return False


def _read_until_stopped(directory: Path) -> tuple[int, int]:
    torn, missing = 0, 0
    deadline = time.monotonic() + _PATIENCE_S
    while not (directory / "stopped").exists() and time.monotonic() < deadline:
        try:
            data = (directory / "replaced").read_bytes()
        except FileNotFoundError:
            missing += 1
            continue
        torn += len(data) != len(_content(0)) or len(set(data)) != 1
    return torn, missing


def _append(directory: Path, rank: int) -> None:
    file = durable.AppendFile(directory / "appended.jsonl")
    try:
        for _ in range(LINES):
            file.append(bytes([ord("a") + rank]) * _WIDTH + b"\n")
        file.sync()
    finally:
        file.close()


def _content(number: int) -> bytes:
    return bytes([ord("A") + number % 26]) * 8192


def _tell(directory: Path, name: str) -> None:
    durable.publish(directory / name, b"")


def _wait_for(directory: Path, name: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not (directory / name).exists():
        if time.monotonic() > deadline:
            raise PartnerMissingError(f"the other process did not say {name!r} within {_PATIENCE_S:.0f} s")
        # A listing makes network file systems look again where a single name may be remembered as absent.
        list(directory.iterdir())
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

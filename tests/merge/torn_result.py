"""Work shared out in a process of its own, of which one worker is killed when it has written half of a result.

    python -m tests.merge.torn_result fork|afresh

Prints the results, and what is left of the workers: processes, threads, open descriptors.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path

from merge.fan_out import share_out

#: More than any pipe holds.
LONG = 1 << 20


def long_text(number: int) -> str:
    if number == 3 and multiprocessing.parent_process() is not None:
        setattr(Connection, "_send", write_half)  # noqa: B010 - typed as if it had none
    return f"{number} " * LONG


def write_half(line: Connection, data: bytes) -> None:
    half = memoryview(data)[: len(data) // 2]
    while half:
        half = half[os.write(line.fileno(), half) :]
    os.kill(os.getpid(), signal.SIGKILL)


def descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def main(method: str) -> None:
    # Whoever starts processes afresh has one more of them for as long as it lives.
    multiprocessing.get_context("spawn").Lock()
    gate, before = threading.Event(), descriptors()
    other = threading.Thread(target=gate.wait, daemon=True)
    if method == "afresh":
        other.start()
    found = list(share_out(long_text, range(12), alone=2, workers=2, may_start_afresh=True))
    gate.set()
    if method == "afresh":
        other.join()
    print(
        json.dumps(
            {
                "right": [text == f"{number} " * LONG for number, text in enumerate(found)],
                "left": [len(multiprocessing.active_children()), threading.active_count() - 1, len(descriptors() - before)],
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])

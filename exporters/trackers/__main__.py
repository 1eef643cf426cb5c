"""The program of the child process: reads a payload, calls the named sender and prints its answer as the last line."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from importlib import import_module

from exporters.trackers.sender import Refused


def main() -> None:
    """Run the sender named by the first argument; the second is a pipe that ends when whoever called is gone."""
    threading.Thread(target=_end_with, args=(int(sys.argv[2]),), daemon=True).start()
    # Clients print what they like; only the answer belongs to stdout.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module, _, name = sys.argv[1].partition(":")
    try:
        answer = getattr(import_module(module), name)(json.load(sys.stdin))
    except Refused as error:
        answer = {"refused": str(error)}
    except BaseException:  # noqa: BLE001 - reported to the parent, which raises it
        answer = {"bug": traceback.format_exc()}
    answers.write("\n" + json.dumps(answer) + "\n")
    answers.flush()
    # Threads of a client may wait for ever for a server that is gone.
    os._exit(0)


def _end_with(lifeline: int) -> None:
    os.read(lifeline, 1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()

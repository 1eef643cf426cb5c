"""Ctrl-C and SIGTERM of a command that works in this process: the first asks it to stop, the same again ends it at once."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Final

from collector.stop import StopReason, StopRequest

#: Seconds that work in flight may take after the first signal.
_MARGIN_S: Final = 30.0


def stop_on_signals(work: str, cure: str) -> StopRequest:
    """A request to stop that signals make from now on, in the running event loop.

    The first says that ``work`` in flight, in the plural, may finish, and with ``cure`` how the command goes on later.
    """
    stop = StopRequest(margin_s=_MARGIN_S)

    def ask(reason: StopReason) -> None:
        if not stop.is_asked:
            waits = f"{work} in flight may finish within {stop.margin_s:g} s, the same signal again ends it at once"
            sys.stderr.write(f"\nstopping: {waits}. {cure}\n")
        stop.ask(reason)

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, ask, StopReason.INTERRUPTED)
    loop.add_signal_handler(signal.SIGTERM, ask, StopReason.TERMINATED)
    return stop

"""A backend's client in a process of its own: it ends in time whatever the server does, and leaves nothing in this one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from collector.text.masked import masked_address, without_secrets
from exporters.source import ExportError

_ROOT: Final = Path(__file__).resolve().parents[2]
#: Characters of a client's own complaint that are worth reading.
_LONGEST: Final = 600


def call(
    sender: str,
    payload: Mapping[str, Any],
    *,
    timeout_s: float,
    environ: Mapping[str, str | None],
    address: str | None = None,
) -> dict[str, Any]:
    """The answer of ``sender`` ("module:function", JSON in, JSON out) from a process that lives for ``timeout_s`` at most.

    ``environ`` is laid over this process's; None takes a variable away. ``address`` is the backend's, with its credentials. The
    process ends with this one, even if this one is killed: whoever exports next finds nobody at work.

    Raises ExportError, at the masked address, when the backend refuses, cannot be reached or does not answer in time;
    RuntimeError, with its traceback, for a bug in the sender. Neither holds a credential.
    """
    given = {name: value for name, value in {**os.environ, **environ}.items() if value is not None}
    where = masked_address(address or "")
    process, lifeline = _started(sender, given)
    is_late = threading.Event()

    def end() -> None:
        is_late.set()
        _kill_group(process)

    # communicate(timeout=) would return and leave the client's own children behind.
    timer = threading.Timer(timeout_s, end)
    timer.start()
    try:
        out, told = process.communicate(json.dumps(payload).encode())
    finally:
        timer.cancel()
        _kill_group(process)
        os.close(lifeline)
    if is_late.is_set():
        raise ExportError(f"did not answer within {timeout_s:g} s.", "Export again when it does, or raise timeout_s.", where)
    answer = _answer(process.returncode, out, told.decode(errors="replace"))
    if "bug" in answer:
        raise RuntimeError(without_secrets(answer["bug"], address, given))
    if "refused" in answer:
        told_why = without_secrets(" ".join(str(answer["refused"]).split()), address, given)
        raise ExportError(told_why[:_LONGEST], where=where)
    return answer


def _started(sender: str, environ: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], int]:
    """The process of ``sender``, and the descriptor whose end, with this process at the latest, ends it."""
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    alive, lifeline = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "exporters.trackers", sender, str(alive)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**environ, "PYTHONPATH": path},
            start_new_session=True,
            pass_fds=[alive],
        )
    except OSError:
        os.close(lifeline)
        raise
    finally:
        os.close(alive)
    return process, lifeline


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _answer(code: int, out: bytes, told: str) -> dict[str, Any]:
    try:
        return json.loads(out.splitlines()[-1])
    except (ValueError, IndexError):
        if code < 0:
            return {"refused": f"the client was ended by signal {-code}: {told[-200:]}"}
        return {"bug": f"the sender ended with {code} and no answer:\n{told[-4000:]}"}

"""A process that kills itself just before its n-th call into ``collector.durable`` or the kernel calls it makes.

Arguments: n, the exit log, then ``module:function`` and its JSON arguments. Run with ``python -m``.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from collector import durable

#: The calls by which durable changes a disk, as it finds them.
_OS_CALLS = (
    "open",
    "write",
    "fsync",
    "fdatasync",
    "replace",
    "rename",
    "link",
    "unlink",
    "fchmod",
    "ftruncate",
    "pwrite",
    "pwritev",
)


class CountedOs:
    """``os`` as durable sees it, with every changing call counted."""

    def __init__(self, fatal: int) -> None:
        self._fatal = fatal
        self.calls = 0
        for name in _OS_CALLS:
            setattr(self, name, self._counted(getattr(os, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            if self.calls == self._fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            self.calls += 1
            return call(*args, **kwargs)

        return counted


def main() -> None:
    fatal, log, target, arguments = int(sys.argv[1]), sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
    module, _, name = target.partition(":")
    function = getattr(importlib.import_module(module), name)
    counted = CountedOs(fatal)
    for part in (durable.directory, durable.growing, durable.names, durable.publication, durable.writing):
        part.os = counted  # type: ignore[assignment]
    function(**arguments)
    Path(log).write_text(str(counted.calls))


if __name__ == "__main__":
    main()

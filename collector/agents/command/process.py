"""A command as a process group that ends with its owner, however that ends."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from collector import durable, supervise

#: Seconds between the last SIGTERM and SIGKILL when the owner is gone, or has waited for long enough already.
_LAST_GRACE_S: Final = 0.5
#: Seconds until a supervisor that does not end by itself is given up.
_SUPERVISOR_S: Final = 10.0


class CommandProcess:
    """Runs inside the context; nothing of its process group is left behind it."""

    def __init__(self, command: Sequence[str], *, directory: Path, environ: Mapping[str, str], log: Path) -> None:
        self._command = [sys.executable, "-I", supervise.__file__, str(_LAST_GRACE_S), *command]
        self._directory = directory
        self._environ = environ
        self._log = log

    async def __aenter__(self) -> Self:
        """Start it. Raises OSError when this machine cannot."""
        # Straight into the file: however much it says, none of it is held here.
        output = durable.open_log(self._log)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                cwd=self._directory,
                env=dict(self._environ),
                start_new_session=True,
            )
        finally:
            os.close(output)
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(_SUPERVISOR_S):
                await self._process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def wait(self) -> int:
        """Its exit code; 128 plus the number of the signal that ended it."""
        return await self._process.wait()

    def terminate(self) -> None:
        """SIGTERM to the whole group, if it is there."""
        stdin = self._process.stdin
        if stdin is not None and not stdin.is_closing() and self._process.returncode is None:
            stdin.write(b"T")

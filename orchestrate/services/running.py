"""One service that a job starts: its process, here or on another node, from its start to its end."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from collector import durable, supervise
from collector.errors import ServiceError
from orchestrate.config.pools import Placement
from orchestrate.config.service_command import command_of, model_name
from orchestrate.config.services import CommandService, VllmService
from orchestrate.config.values import resolve_env
from orchestrate.services.endpoint import Endpoint, Probe
from orchestrate.services.placing import ANY_ADDRESS, Site, find_site, taken
from orchestrate.services.ports import free_port, is_listened_on, is_taken
from orchestrate.services.tasks import end_all
from orchestrate.services.waiting import Waiting

HOST: Final = "127.0.0.1"
#: The variable that names the GPUs which a process sees.
DEVICES: Final = "CUDA_VISIBLE_DEVICES"
#: Lines of a service's log that its error shows.
_LAST_LINES: Final = 12
#: How often another port is tried for a service that was not the first at its own.
_OTHER_PORTS: Final = 3
#: Seconds beyond a service's own grace until its supervisor is given up as well.
_STOP_MARGIN_S: Final = 5.0


class RunningService:
    """A command service from its start to its end. Use as an async context manager."""

    def __init__(
        self,
        name: str,
        service: CommandService | VllmService,
        *,
        log: Path,
        job: str,
        environ: Mapping[str, str],
        placement: Placement | None = None,
    ) -> None:
        self.name = name
        self.service = service
        self.log = log
        self.job = job
        self.was_ready = False
        self.address = HOST
        self.port = service.port or free_port()
        self._placement = placement
        #: Where it runs when that is another node; known once it was started.
        self._site: Site | None = None
        self._environ = environ
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> Endpoint:
        """Where the service answers once it is ready."""
        return Endpoint(f"http://{self.address}:{self.port}/v1", model_name(self.service))

    async def __aenter__(self) -> Self:
        """Start the process; it is not ready yet. Raises ServiceError when that cannot be, or another server has its port."""
        where = f"service {self.name}"
        if self._placement is not None:
            self._site = await find_site(where, self._placement, self.service.port, self._environ)
            self.address, self.port = self._site.address, self._site.port
        elif self.service.port is not None and is_listened_on(self.port):
            raise taken(where, self.port)
        output = durable.open_log(self.log)
        try:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - returns within milliseconds, before anything else runs
                self._command(),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                # In a container the directory is one of the image.
                # srun goes to the same directory on another node.
                cwd=self.service.cwd if self.service.container is None else None,
                env=self._environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise ServiceError(f"cannot be started: {error.strerror}.", "Check its command and cwd.", where) from error
        finally:
            os.close(output)
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop the whole process group: SIGTERM, then SIGKILL after the grace."""
        process = self._process
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        limit_s = self.service.stop_grace_s + _STOP_MARGIN_S
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(process.wait, limit_s)
        if process.poll() is None:
            process.kill()
            process.wait()

    async def wait_ready(self, probe: Probe, say: Callable[[str], None] = lambda _line: None) -> None:
        """Return when the model answers. Raises ServiceError when the process ends, or is not ready in its time."""
        waiting = Waiting(self.name, self.endpoint, self.service.ready_timeout_s, say)
        health = self.service.health_check
        health_url = f"http://{self.address}:{self.port}{health.path}" if health else None
        answer = asyncio.create_task(waiting.until_ready(probe, health_url))
        # A port that was given to somebody else may take a question and never answer it.
        end = asyncio.create_task(self.watch())
        try:
            await asyncio.wait({answer, end}, timeout=self.service.ready_timeout_s, return_when=asyncio.FIRST_COMPLETED)
            # First of all: what answered may be another one than a service that ended.
            self.check_alive()
            if not answer.done():
                raise self._error(f"was not ready within {self.service.ready_timeout_s:g} s ({waiting.reason})")
            answer.result()
            self.was_ready = True
        finally:
            await end_all([answer, end])

    def check_alive(self) -> None:
        """Raise ServiceError with the last log lines when the process has ended, with whatever exit code."""
        if self._process is not None and (code := self._process.poll()) is not None:
            raise self._error(f"ended with exit code {code} while it was needed")

    def has_ended(self) -> bool:
        """Whether the process was started and is gone."""
        return self._process is not None and self._process.poll() is not None

    def restarts_allowed(self) -> int:
        """How often it may be brought up again now that it ended: its allowance once it was ready.

        Before that it would end the same way, unless its port was given to somebody else: it gets another one.
        """
        if self.was_ready:
            return self.service.max_restarts
        return _OTHER_PORTS if self.service.port is None and self._site is None and is_taken(self.port) else 0

    async def watch(self) -> None:
        """Raise ServiceError when the process ends; return never."""
        while True:
            self.check_alive()
            await asyncio.sleep(0.2)

    def _error(self, what: str) -> ServiceError:
        lines = _tail(self.log)
        said = f" Its last words: {' | '.join(lines)}" if lines else " It wrote nothing."
        return ServiceError(f"{what}.{said}", f"Its log is {self.log}.", f"service {self.name}")

    def _command(self) -> list[str]:
        step = () if self._site is None else self._site.step
        command = command_of(self.service, name=self.name, job=self.job, variables=self.service.env, step=step)
        supervised = [sys.executable, "-I", supervise.__file__, str(self.service.stop_grace_s)]
        filled = [self._filled(part) for part in command]
        if self.service.container is None:
            # On another node the supervisor stands beside the service; srun brings it the end of our standard input.
            return [*step, *supervised, *filled]
        return [*supervised, *filled]

    def _environment(self) -> dict[str, str]:
        own = resolve_env(self.service.env, self._environ, where=f"service {self.name}")
        # The devices of this node are none of another one's: there the step gets those that Slurm gives it.
        base = {name: value for name, value in self._environ.items() if self._site is None or name != DEVICES}
        return {**base, **{name: self._filled(value) for name, value in own.items()}}

    def _filled(self, text: str) -> str:
        # Not str.format: commands carry JSON, whose braces are not ours.
        return text.replace("{port}", str(self.port)).replace("{host}", HOST if self._site is None else ANY_ADDRESS)


def _tail(log: Path) -> list[str]:
    with suppress(OSError):
        lines = log.read_bytes()[-8192:].decode(errors="replace").splitlines()
        return [line.strip() for line in lines if line.strip()][-_LAST_LINES:]
    return []

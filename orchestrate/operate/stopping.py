"""How a job is told to stop: Slurm by scancel, a process of this machine by signals to its group."""

from __future__ import annotations

import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final

from collector.errors import UnavailableError
from orchestrate.operate.jobs import RunJob
from orchestrate.runs.plan import SubmitPlan
from orchestrate.scheduler import ASK_TIMEOUT_S, scrubbed_environment

#: Job ids on one command line.
_IDS_AT_ONCE: Final = 500


class Stopper(ABC):
    """Stops jobs that are known to be live. Sending twice does no harm."""

    #: Seconds between the moment when all are over and the last look: a requeue may be on its way.
    second_look_s: ClassVar[float] = 0.0

    @abstractmethod
    def drain(self, jobs: Sequence[RunJob]) -> None:
        """Ask running jobs to let requests in flight finish and end; they do within seconds. Waiting ones are cancelled."""

    @abstractmethod
    def cancel(self, jobs: Sequence[RunJob]) -> None:
        """End the jobs, waiting ones included. Raises UnavailableError when the scheduler cannot be told."""

    @abstractmethod
    def kill(self, jobs: Sequence[RunJob]) -> None:
        """End what did not end when it was cancelled."""

    @abstractmethod
    def forget(self, tokens: Sequence[str]) -> None:
        """Cancel whatever was submitted under these unique names, known or not."""


class SlurmStopper(Stopper):
    """By scancel. Every task of an array has an id, so its pending ones are named too."""

    second_look_s = 2.0

    def drain(self, jobs: Sequence[RunJob]) -> None:
        running = [job for job in jobs if job.fact.state == "RUNNING"]
        self.cancel([job for job in jobs if job not in running])
        # --batch: the batch step is the collector itself; services end with it.
        self._each(["--signal=TERM", "--batch"], running)

    def cancel(self, jobs: Sequence[RunJob]) -> None:
        self._each([], jobs)

    def kill(self, jobs: Sequence[RunJob]) -> None:
        # Slurm kills by itself after its KillWait; saying it again is all that helps a job it missed.
        self._each([], jobs)

    def forget(self, tokens: Sequence[str]) -> None:
        for token in tokens:
            _scancel([f"--name={token}"])

    def _each(self, options: list[str], jobs: Sequence[RunJob]) -> None:
        ids = [job.job_id for job in jobs]
        for start in range(0, len(ids), _IDS_AT_ONCE):
            _scancel([*options, *ids[start : start + _IDS_AT_ONCE]])


class LocalStopper(Stopper):
    """By the process group, of which the job is the leader; only of a process that is certainly the one that was started."""

    def drain(self, jobs: Sequence[RunJob]) -> None:
        self._signal(signal.SIGTERM, jobs)

    def cancel(self, jobs: Sequence[RunJob]) -> None:
        self._signal(signal.SIGTERM, jobs)

    def kill(self, jobs: Sequence[RunJob]) -> None:
        self._signal(signal.SIGKILL, jobs)

    def forget(self, tokens: Sequence[str]) -> None:
        marks = [b"\0" + token.encode() + b"\0" for token in tokens]
        for directory in Path("/proc").iterdir():
            with suppress(OSError):
                if directory.name.isdigit() and any(mark in (directory / "cmdline").read_bytes() for mark in marks):
                    os.killpg(int(directory.name), signal.SIGTERM)

    @staticmethod
    def _signal(number: signal.Signals, jobs: Sequence[RunJob]) -> None:
        for job in jobs:
            pid = int(job.job_id.split(":")[-2])
            try:
                os.killpg(pid, number)
            except ProcessLookupError:
                continue
            except PermissionError as error:
                raise UnavailableError(f"process {pid} belongs to another user.", "Ask its owner.", job.shown) from error


def stopper_for(plan: SubmitPlan) -> Stopper:
    """How the jobs of ``plan`` are stopped."""
    match plan.config.the_compute.type:
        case "slurm":
            return SlurmStopper()
        case "local":
            return LocalStopper()


def _scancel(arguments: list[str]) -> None:
    if not arguments:
        return
    command = ["scancel", *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=6 * ASK_TIMEOUT_S, env=scrubbed_environment(), check=False
        )
    except FileNotFoundError as error:
        raise UnavailableError("scancel is not installed here.", "Cancel from a machine with Slurm's programs.") from error
    except subprocess.TimeoutExpired as error:
        raise UnavailableError("scancel gave no answer in time.", "Run the same command again.") from error
    said = " ".join(done.stderr.split())
    # A job that ended in the meantime is what was wanted.
    if done.returncode and "Invalid job id" not in said and "already complet" not in said.lower():
        raise UnavailableError(f"scancel: {said or f'exit code {done.returncode}'}.", "Run the same command again.")

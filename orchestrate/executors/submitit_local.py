"""submitit's local executor without its controller: a job outlives the command, has no time limit and keeps its GPUs.

submitit 1.5.4 ends a local job after two minutes unless told otherwise, leaves it in the terminal's session, where Ctrl-C
reaches it, and hides every GPU from it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from collector import durable
from orchestrate.executors.tasks import stage_tasks  # first: it keeps submitit from configuring logging

from submitit import LocalExecutor, LocalJob  # isort: skip
from submitit.core.utils import DelayedSubmission  # isort: skip

#: Seconds that the started processes of a batch have together to stop when another one could not be started.
_STOP_S: Final = 15.0


class DetachedLocalExecutor(LocalExecutor):
    """Starts a process for each task; output is added to ``logs/job-<token>-<position>.log``."""

    def __init__(self, folder: Path, *, logs: Path) -> None:
        super().__init__(folder.parent)
        self.folder = folder
        self._logs = logs
        # Kept so that a child which ends early is reaped while this command lives.
        self.processes: list[subprocess.Popen[bytes]] = []

    def _internal_process_submissions(self, delayed_submissions: list[DelayedSubmission]) -> list[Any]:
        stage_tasks(self.folder, delayed_submissions, None, timeout_min=0)
        try:
            for position in range(len(delayed_submissions)):
                self.processes.append(self._start(position))
        except OSError:
            self._end_started()
            raise
        return [LocalJob(folder=self.folder, job_id=str(process.pid), process=process) for process in self.processes]

    def _start(self, position: int) -> subprocess.Popen[bytes]:
        token = self.folder.name
        output = durable.open_log(self._logs / f"job-{token}-{position}.log")
        try:
            return subprocess.Popen(
                [sys.executable, "-u", "-m", "orchestrate.entry", str(self.folder), str(position), token],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_environment(),
                start_new_session=True,
            )
        finally:
            os.close(output)

    def _end_started(self) -> None:
        """A batch that is not accepted has no jobs: end those of its processes that run, with all that they started."""
        # SIGTERM first: a process that has begun its work stops its services, which are in groups of their own.
        for process in self.processes:
            os.killpg(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_S
        for process in self.processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.processes.clear()


def _environment() -> dict[str, str]:
    """The command's own, without traces of a job that it may itself run in."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "SUBMITIT_"))}
    return {**kept, "SUBMITIT_EXECUTOR": "local"}

"""What a job's process runs: ``python -m orchestrate.entry FOLDER POSITION TOKEN``; hands over to submitit.

``run_shard`` and ``run_finisher`` are what the pickles of jobs name. Neither they nor this module change their place: a job
that was submitted before an upgrade finds them after it.

The folder is opened and given to submitit by the number of its descriptor: submitit replaces ``%j`` and its like in the paths
it is told, and a folder of the user's may contain them.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path


def main(argv: list[str]) -> None:
    """Run the task at a position of a submission; in a Slurm array the position is the array index."""
    folder, position, *_token = argv
    os.environ.setdefault("SUBMITIT_LOG_LEVEL", "NOCONFIG")
    job_id = _job_id()
    literal = Path(f"/proc/self/fd/{os.open(folder, os.O_RDONLY | os.O_DIRECTORY)}")
    # A requeued job finds the link that its first run made.
    with suppress(FileExistsError):
        (literal / f"{job_id}_submitted.pkl").symlink_to(f"{os.environ.get('SLURM_ARRAY_TASK_ID', position)}.pkl")
    from submitit.core.submission import process_job  # noqa: PLC0415 - after the log level is set

    process_job(literal)


def _be_quiet_about_sigcont() -> None:
    # Slurm sends it before each SIGTERM, and submitit's handler writes a line of it that means nothing to whoever reads a log.
    signal.signal(signal.SIGCONT, signal.SIG_DFL)


def run_shard(run_dir: str, benchmark: str, index: str, *more: str) -> int:
    """What a job does: its shards, as pairs of benchmark and index. Returns 0, or ends the process with another exit code."""
    from orchestrate.jobs.job import run_shard as run  # noqa: PLC0415 - the submitting command names it and does not call it

    _be_quiet_about_sigcont()
    return run(run_dir, benchmark, index, *more)


def run_finisher(run_dir: str, benchmark: str, token: str) -> int:
    """What the job that follows all others of a benchmark does. Returns 0, or ends the process with another exit code."""
    from orchestrate.jobs.finisher import run_finisher as run  # noqa: PLC0415 - the same

    _be_quiet_about_sigcont()
    return run(run_dir, benchmark, token)


def _job_id() -> str:
    """The id by which submitit will look for the task; a local job is known by its own process."""
    if os.environ.get("SUBMITIT_EXECUTOR") == "local":
        os.environ["SUBMITIT_LOCAL_JOB_ID"] = str(os.getpid())
        return os.environ["SUBMITIT_LOCAL_JOB_ID"]
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    return f"{array}_{os.environ['SLURM_ARRAY_TASK_ID']}" if array else os.environ["SLURM_JOB_ID"]


if __name__ == "__main__":
    main(sys.argv[1:])

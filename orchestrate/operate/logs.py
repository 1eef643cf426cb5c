"""Which log files of a run belong to which shard or service, their last lines, and what is added to them from now on."""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrate.operate.jobs import shard_words
from orchestrate.runs.directory import RunDir
from orchestrate.runs.plan import BenchmarkPlan, SubmitPlan
from orchestrate.runs.submissions import Submission, read_submissions

#: Bytes read from the end of a file for its last lines.
_TAIL_BYTES: Final = 256 << 10
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class LogFile:
    """One log: ``label`` says whose, such as ``math shard 3``."""

    label: str
    path: Path


@dataclass(frozen=True, slots=True)
class LogChoice:
    """Which logs are wanted; None is any. ``shards`` are pairs of benchmark and index."""

    benchmark: str | None = None
    shard: int | None = None
    service: str | None = None
    shards: frozenset[tuple[str, int]] | None = None

    def takes(self, benchmark: str, index: int) -> bool:
        """Whether the shard is among the wanted ones."""
        return (
            self.benchmark in (None, benchmark)
            and self.shard in (None, index)
            and (self.shards is None or (benchmark, index) in self.shards)
        )


def logs_of(run: RunDir, plan: SubmitPlan, choice: LogChoice) -> list[LogFile]:
    """The wanted logs that exist, shard by shard, older jobs of a shard first."""
    submissions = read_submissions(run.submissions)
    found: list[LogFile] = []
    for benchmark in plan.benchmarks:
        mine = [s for s in submissions if s.prepared.benchmark == benchmark.name]
        for index in sorted({index for s in mine for index in s.jobs}):
            if choice.takes(benchmark.name, index):
                found += _of_shard(run, benchmark, index, mine, choice.service)
    return _each_once(found)


def _each_once(files: Iterable[LogFile]) -> list[LogFile]:
    """A packed job's log is that of all its shards."""
    owners: dict[Path, list[str]] = {}
    for file in files:
        labels = owners.setdefault(file.path, [])
        if file.label not in labels:
            labels.append(file.label)
    return [
        LogFile(labels[0] if len(labels) == 1 else f"{labels[0]} and {len(labels) - 1} more", path)
        for path, labels in owners.items()
    ]


def _of_shard(
    run: RunDir, benchmark: BenchmarkPlan, index: int, submissions: Iterable[Submission], service: str | None
) -> Iterator[LogFile]:
    for submission in submissions:
        if index not in submission.jobs:
            continue
        # The last job of a packed batch may have a single shard, and its services' logs beside that shard's.
        folders = [run.logs(benchmark), *([run.logs(None)] if submission.is_packed else [])]
        names = _names(submission, submission.position_of(index), submission.jobs[index], service)
        found = {path for folder in folders for name in names for path in folder.glob(name)}
        paths = sorted(found, key=lambda path: path.stat().st_mtime)
        what = shard_words(benchmark.name, index) + (f" {service}" if service is not None else "")
        yield from (LogFile(what, path) for path in paths)


def _names(submission: Submission, position: int, job_id: str, service: str | None) -> list[str]:
    """Patterns of the names that a job and its services give their logs: by job id on Slurm, by batch on one machine."""
    if service is None:
        return [f"job-{glob.escape(job_id)}.log", f"job-{glob.escape(submission.token)}-{position}.log"]
    # A local job is called local:<pid> by itself, and host:pid:start by its receipt.
    own = [job_id, f"local-{job_id.split(':')[-2]}" if ":" in job_id else job_id]
    return [f"{glob.escape(service)}-{glob.escape(name.replace(':', '-'))}*.log" for name in own]


def last_lines(path: Path, count: int) -> tuple[list[str], int]:
    """The last ``count`` lines of the file, and the offset behind them."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        data = file.read(_TAIL_BYTES)
    lines = data.decode(errors="replace").split("\n")
    if lines[-1] == "":
        lines.pop()
    return (lines[-count:] if count else []), size


class Follower:
    """Says what is added to logs, whole lines only, each with its label; later logs from their start."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._offsets: dict[Path, int] = {}
        self._rest: dict[Path, bytes] = {}

    def begin(self, path: Path, offset: int) -> None:
        """What stands before ``offset`` was said already."""
        self._offsets[path] = offset

    def look(self, files: Iterable[LogFile]) -> None:
        """Say what was added since the last look."""
        for file in files:
            for line in self._added(file.path):
                self._say(f"{file.label}: {line}")

    def _added(self, path: Path) -> Iterator[str]:
        offset = self._offsets.get(path, 0)
        with path.open("rb") as opened:
            opened.seek(offset)
            while data := opened.read(_CHUNK):
                offset += len(data)
                *lines, rest = (self._rest.pop(path, b"") + data).split(b"\n")
                self._rest[path] = rest
                yield from (line.decode(errors="replace") for line in lines)
        self._offsets[path] = offset


def follow(
    follower: Follower,
    files: Callable[[], list[LogFile]],
    is_over: Callable[[], bool],
    *,
    pause_s: float,
    ask_every_s: float,
) -> None:
    """Look at the logs until ``is_over``, which is asked now and then since it may ask the scheduler."""
    next_question = time.monotonic() + ask_every_s
    while True:
        follower.look(files())
        if time.monotonic() >= next_question:
            if is_over():
                follower.look(files())
                return
            next_question = time.monotonic() + ask_every_s
        time.sleep(pause_s)

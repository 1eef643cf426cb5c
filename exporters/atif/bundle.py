"""A folder of trajectories from a file of rows: converted side by side, problems reported together, published in one rename."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from collector import durable, jsonl
from collector.artifacts import RunArtifacts
from collector.text.counted import agreeing, counted
from exporters.atif.conversion import Converted, Keep, Outcome, batches, convert_batch
from exporters.atif.profile import Context
from exporters.source import ExportError, selected_lines
from exporters.strict_rows import Place
from merge.fan_out import share_out
from merge.publication.receipt import file_sha256

MANIFEST_NAME: Final = "manifest.jsonl"
#: Problems listed by name; the rest is counted.
_LISTED: Final = 100
#: Fewer batches are converted by one process before another has begun.
_ALONE: Final = 6


class Published(NamedTuple):
    """A folder that stands: how many trajectories, and the digest of its manifest."""

    trajectories: int
    manifest_sha256: str


@dataclass(slots=True)
class _Gathered:
    """The rows so far, in file order: what is wrong with them, and the manifest of those with which nothing is."""

    rows: int = 0
    problems: int = 0
    listed: list[str] = field(default_factory=list[str])
    manifest: list[bytes] = field(default_factory=list[bytes])
    places: set[Place] = field(default_factory=set[Place])
    agent: str | None = None

    def add(self, batch: Converted) -> None:
        """Take the next rows."""
        for outcome in batch.outcomes:
            self._add(outcome)

    def _add(self, outcome: Outcome) -> None:
        self.rows += 1
        problem = self._problem(outcome)
        if problem is None:
            self.manifest.append(outcome.manifest_line)
            return
        self.problems += 1
        if self.problems <= _LISTED:
            self.listed.append(f"line {self.rows}: {problem}")

    def _problem(self, outcome: Outcome) -> str | None:
        if outcome.place in self.places:
            return f"rollout {outcome.place} occurs a second time"
        if outcome.place is None or outcome.agent is None:
            return outcome.problem
        self.places.add(outcome.place)
        self.agent = outcome.agent if self.agent is None else self.agent
        if outcome.agent != self.agent:
            return f"it is of agent {outcome.agent!r}, and earlier rows are of {self.agent!r}"
        return outcome.problem

    def check(self, source: Path) -> None:
        """Raise ExportError unless there are rows, and nothing is wrong with any."""
        if self.problems:
            more = self.problems - len(self.listed)
            details = (*self.listed, *([f"and {more} more"] if more else []))
            rows_have = f"{counted(self.problems, 'row')} {agreeing(self.problems, 'have')}"
            what = f"{rows_have} no trajectory: {self.listed[0]}."
            raise ExportError(what, "Nothing was published.", source, details)
        if not self.manifest:
            raise ExportError("there are no rows.", "Nothing was published.", source)


def publish_bundle(
    source: RunArtifacts,
    destination: Path,
    context: Context,
    *,
    check: Callable[[], None] = lambda: None,
    may_replace: Callable[[], bool] = lambda: False,
) -> Published:
    """Make ``destination`` a folder with the trajectory of every selected row of ``source`` and their manifest.

    ``check`` may raise when all is read: then, too, nothing is published. Raises ExportError with every problem of every row,
    FileExistsError when the destination exists and not ``may_replace``, OSError; nothing is published then.
    Memory: about 400 bytes a row.
    """
    gathered = _Gathered()
    with durable.staged_dir(destination, are_files_synced=True, may_replace=may_replace) as folder:
        with closing(_converted(source, context, partial(_write, folder), gathered)) as converted:
            for batch in converted:
                gathered.add(batch)
        check()
        gathered.check(source.rollouts)
        data = b"".join(gathered.manifest)
        durable.write_synced(folder, [(MANIFEST_NAME, data)])
    return Published(len(gathered.manifest), hashlib.sha256(data).hexdigest())


def find_bundle(source: RunArtifacts, destination: Path, context: Context) -> Published | None:
    """The folder at ``destination`` when it is exactly what ``publish_bundle`` would make; None otherwise. Writes nothing."""
    gathered = _Gathered()
    with closing(_converted(source, context, partial(_hold, destination), gathered)) as converted:
        for batch in converted:
            gathered.add(batch)
            if gathered.problems or not batch.is_kept:
                return None
    count, data = len(gathered.manifest), b"".join(gathered.manifest)
    is_whole = _hold(destination, [(MANIFEST_NAME, data)]) and sum(1 for _ in destination.iterdir()) == count + 1
    return Published(count, hashlib.sha256(data).hexdigest()) if is_whole and count else None


def is_as_published(folder: Path) -> bool:
    """Whether ``folder`` holds the files of its manifest, each with its digest, and nothing else; False when unreadable."""
    try:
        entries = [jsonl.loads(line) for line in (folder / MANIFEST_NAME).read_bytes().splitlines()]
        digests = {entry["trajectory_path"]: entry["expected_sha256"] for entry in entries}
        # A link has another owner's bytes behind it.
        if folder.is_symlink() or any(path.is_symlink() or not path.is_file() for path in folder.iterdir()):
            return False
        found = {path.name: file_sha256(path) for path in folder.iterdir() if path.name != MANIFEST_NAME}
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return found == digests


def _converted(source: RunArtifacts, context: Context, keep: Keep, gathered: _Gathered) -> Generator[Converted]:
    """What becomes of the selected rows of ``source``, in order, while the caller has them ``gathered``."""
    # After the first problem nothing will be published; the rows are still read, to report all of them.
    wanted = batches(selected_lines(source), lambda: not gathered.problems)
    return share_out(partial(convert_batch, context=context, keep=keep), wanted, alone=_ALONE)


def _write(folder: Path, files: list[tuple[str, bytes]]) -> bool:
    # One may be there: of a process that was killed, or of an earlier row of one rollout, and then nothing is published.
    durable.write_synced(folder, files)
    return True


def _hold(folder: Path, files: list[tuple[str, bytes]]) -> bool:
    try:
        return all((folder / name).read_bytes() == data for name, data in files)
    except OSError:
        return False

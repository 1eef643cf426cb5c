"""A folder of trajectories from a file of rows: converted one by one, problems reported together, published in one rename."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from collector import durable, jsonl, rows
from collector.artifacts import RunArtifacts
from exporters.atif.lossy import LossyProfile
from exporters.atif.profile import Choice, Context, Profile, choose
from exporters.atif.strict import StrictProfile
from exporters.source import ExportError, selected_lines
from exporters.strict_rows import Place, RowError, parse_row, place_of

MANIFEST_NAME: Final = "manifest.jsonl"
#: The first that accepts a row converts it.
PROFILES: Final[dict[Choice, tuple[Profile, ...]]] = {
    Choice.AUTO: (StrictProfile(), LossyProfile()),
    Choice.STRICT: (StrictProfile(),),
    Choice.LOSSY: (LossyProfile(),),
}
#: Problems listed by name; the rest is counted.
_LISTED: Final = 100


class Trajectory(NamedTuple):
    """One file of the folder."""

    name: str
    data: bytes
    manifest_line: bytes


@dataclass(slots=True)
class Problems:
    """What is wrong with rows, in file order."""

    listed: list[str] = field(default_factory=list[str])
    count: int = 0

    def add(self, number: int, what: str) -> None:
        """Line ``number`` of the rows cannot be exported."""
        self.count += 1
        if self.count <= _LISTED:
            self.listed.append(f"line {number}: {what}")


class Published(NamedTuple):
    """A folder that stands: how many trajectories, and the digest of its manifest."""

    trajectories: int
    manifest_sha256: str


def publish_bundle(
    source: RunArtifacts, destination: Path, context: Context, *, check: Callable[[], None] = lambda: None
) -> Published:
    """Make ``destination`` a folder with the trajectory of every selected row of ``source`` and their manifest.

    ``check`` may raise when all is read: then, too, nothing is published. Raises ExportError with every problem of every row,
    FileExistsError when the destination exists, OSError; nothing is published then. Memory: about 150 bytes a row.
    """
    problems = Problems()
    manifest: list[bytes] = []
    with durable.staged_dir(destination) as folder:
        for trajectory in trajectories(source, context, problems):
            # After the first problem nothing will be published; the rows are still read, to report all of them.
            if not problems.count:
                durable.write_new(folder / trajectory.name, trajectory.data)
                manifest.append(trajectory.manifest_line)
        check()
        _raise_problems(problems, len(manifest), source.rollouts)
        data = b"".join(manifest)
        durable.write_new(folder / MANIFEST_NAME, data)
    return Published(len(manifest), hashlib.sha256(data).hexdigest())


def find_bundle(source: RunArtifacts, destination: Path, context: Context) -> Published | None:
    """The folder at ``destination`` when it is exactly what ``publish_bundle`` would make; None otherwise. Writes nothing."""
    problems = Problems()
    manifest: list[bytes] = []
    for trajectory in trajectories(source, context, problems):
        if problems.count or not _holds(destination / trajectory.name, trajectory.data):
            return None
        manifest.append(trajectory.manifest_line)
    data = b"".join(manifest)
    is_whole = _holds(destination / MANIFEST_NAME, data) and sum(1 for _ in destination.iterdir()) == len(manifest) + 1
    return Published(len(manifest), hashlib.sha256(data).hexdigest()) if is_whole and manifest and not problems.count else None


def trajectories(source: RunArtifacts, context: Context, problems: Problems) -> Iterator[Trajectory]:
    """The trajectory of each selected row of ``source`` that has one; the others are added to ``problems``."""
    seen: dict[Place, str] = {}
    for number, line in enumerate(selected_lines(source), start=1):
        try:
            yield _trajectory(line, context, seen)
        except RowError as error:
            problems.add(number, str(error))


def _trajectory(line: bytes, context: Context, seen: dict[Place, str]) -> Trajectory:
    row = parse_row(line)
    place = place_of(row)
    if place in seen:
        raise RowError(f"rollout {place} occurs a second time")
    document = choose(PROFILES[context.profile], row).convert(row, context)
    agent = next(iter(seen.values()), document.agent.name)
    seen[place] = agent
    if document.agent.name != agent:
        raise RowError(f"it is of agent {document.agent.name!r}, and earlier rows are of {agent!r}")
    try:
        data = document.encode()
    except ValueError as error:
        raise RowError(f"it cannot be written as a trajectory ({error})") from error
    name = f"{place}.json"
    entry = {
        rows.ROLLOUT_INDEX: place.repeat,
        rows.TASK_INDEX: place.task,
        "expected_sha256": hashlib.sha256(data).hexdigest(),
        "trajectory_path": name,
    }
    return Trajectory(name, data, jsonl.canonical(entry) + b"\n")


def _raise_problems(problems: Problems, count: int, source: Path) -> None:
    if problems.count:
        more = problems.count - len(problems.listed)
        details = (*problems.listed, *([f"and {more} more"] if more else []))
        rows_have = "1 row has" if problems.count == 1 else f"{problems.count} rows have"
        what = f"{rows_have} no trajectory: {problems.listed[0]}."
        raise ExportError(what, "Nothing was published.", source, details)
    if not count:
        raise ExportError("there are no rows.", "Nothing was published.", source)


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except OSError:
        return False

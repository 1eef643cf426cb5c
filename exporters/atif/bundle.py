"""A folder of trajectories from a file of rows: converted one by one, problems reported together, published in one rename."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from collector import durable, jsonl, rows
from exporters.atif.lossy import LossyProfile
from exporters.atif.profile import Context, Profile, RowError, choose
from exporters.base import ExportError

MANIFEST_NAME: Final = "manifest.jsonl"
PROFILES: Final[tuple[Profile, ...]] = (LossyProfile(),)
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


def publish_bundle(source: Path, destination: Path, context: Context) -> Published:
    """Make ``destination`` a folder with the trajectory of every row of ``source`` and their manifest.

    Raises ExportError with every problem of every row, FileExistsError when the destination exists, OSError; nothing is
    published then. Memory: about 150 bytes a row.
    """
    problems = Problems()
    manifest: list[bytes] = []
    with durable.staged_dir(destination) as folder:
        for trajectory in trajectories(source, context, problems):
            # After the first problem nothing will be published; the rows are still read, to report all of them.
            if not problems.count:
                durable.write_new(folder / trajectory.name, trajectory.data)
                manifest.append(trajectory.manifest_line)
        _raise_problems(problems, len(manifest), source)
        data = b"".join(manifest)
        durable.write_new(folder / MANIFEST_NAME, data)
    return Published(len(manifest), hashlib.sha256(data).hexdigest())


def find_bundle(source: Path, destination: Path, context: Context) -> Published | None:
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


def trajectories(source: Path, context: Context, problems: Problems) -> Iterator[Trajectory]:
    """The trajectory of each row of ``source`` that has one; the others are added to ``problems``."""
    seen: set[tuple[int, int]] = set()
    with source.open("rb", buffering=1 << 20) as file:
        for number, line in enumerate(file, start=1):
            try:
                yield _trajectory(line, context, seen)
            except RowError as error:
                problems.add(number, str(error))


def _trajectory(line: bytes, context: Context, seen: set[tuple[int, int]]) -> Trajectory:
    row = _parse(line)
    place = _place(row)
    if place in seen:
        raise RowError(f"rollout {place[0]}-{place[1]} occurs a second time")
    seen.add(place)
    data = choose(PROFILES, row).convert(row, context).encode()
    name = f"{place[0]}-{place[1]}.json"
    entry = {
        rows.ROLLOUT_INDEX: place[1],
        rows.TASK_INDEX: place[0],
        "expected_sha256": hashlib.sha256(data).hexdigest(),
        "trajectory_path": name,
    }
    return Trajectory(name, data, jsonl.canonical(entry) + b"\n")


def _parse(line: bytes) -> dict[str, Any]:
    if not line.strip():
        raise RowError("a blank line")
    try:
        row = msgspec.json.decode(line)
    except msgspec.DecodeError:
        # It refuses lone surrogates, which are JSON; whatever else it refuses, the exact reader names better.
        row = _parse_exactly(line)
    if not isinstance(row, dict):
        raise RowError(f"a {type(row).__name__}, not an object")
    return row


def _parse_exactly(line: bytes) -> Any:
    try:
        return jsonl.loads(line)
    except ValueError as error:
        raise RowError(f"invalid JSON ({error})") from error


def _place(row: dict[str, Any]) -> tuple[int, int]:
    task, repeat = row.get(rows.TASK_INDEX), row.get(rows.ROLLOUT_INDEX)
    for key, value in ((rows.TASK_INDEX, task), (rows.ROLLOUT_INDEX, repeat)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise RowError(f"{key} is {value!r}, not a number from 0")
    return task, repeat  # pyright: ignore[reportReturnType] - checked in the loop


def _raise_problems(problems: Problems, count: int, source: Path) -> None:
    if problems.count:
        more = problems.count - len(problems.listed)
        details = (*problems.listed, *([f"and {more} more"] if more else []))
        what = f"{problems.count} rows have no trajectory: {problems.listed[0]}."
        raise ExportError(what, "Nothing was published.", source, details)
    if not count:
        raise ExportError("there are no rows.", "Nothing was published.", source)


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except OSError:
        return False

"""A folder of trajectories from a file of rows: converted one by one, problems reported together, published in one rename."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from collector import durable, jsonl, rows
from collector.artifacts import RunArtifacts
from exporters.atif.lossy import LossyProfile
from exporters.atif.profile import Choice, Context, Profile, RowError, choose
from exporters.atif.strict import StrictProfile
from exporters.source import ExportError, selected_lines

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


def publish_bundle(source: RunArtifacts, destination: Path, context: Context) -> Published:
    """Make ``destination`` a folder with the trajectory of every selected row of ``source`` and their manifest.

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
    seen: dict[tuple[int, int], str] = {}
    for number, line in enumerate(selected_lines(source), start=1):
        try:
            yield _trajectory(line, context, seen)
        except RowError as error:
            problems.add(number, str(error))


def _trajectory(line: bytes, context: Context, seen: dict[tuple[int, int], str]) -> Trajectory:
    row = _parse(line)
    place = _place(row)
    if place in seen:
        raise RowError(f"rollout {place[0]}-{place[1]} occurs a second time")
    document = choose(PROFILES[context.profile], row).convert(row, context)
    agent = next(iter(seen.values()), document.agent.name)
    seen[place] = agent
    if document.agent.name != agent:
        raise RowError(f"it is of agent {document.agent.name!r}, and earlier rows are of {agent!r}")
    data = document.encode()
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
        row = json.loads(line.decode(), object_pairs_hook=_distinct, parse_constant=_refuse)
    except RecursionError as error:
        raise RowError("invalid JSON (nested too deeply)") from error
    except ValueError as error:
        raise RowError(f"invalid JSON ({error})") from error
    if not isinstance(row, dict):
        raise RowError(f"a {type(row).__name__}, not an object")
    return row


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    # Faster readers keep the last of two equal keys, and with it a value that nobody checked.
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {next(key for key in keys if keys.count(key) > 1)!r} occurs twice in one object")
    return found


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


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

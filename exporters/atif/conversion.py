"""Rows to trajectories, a batch at a time and by any process: what became of each row, in order, for whoever gathers them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from collector import jsonl
from collector.formats import rows
from exporters.atif.lossy import LossyProfile
from exporters.atif.profile import Choice, Context, Profile, choose
from exporters.atif.strict import StrictProfile
from exporters.strict_rows import Place, RowError, parse_row, place_of

#: The first that accepts a row converts it.
PROFILES: Final[dict[Choice, tuple[Profile, ...]]] = {
    Choice.AUTO: (StrictProfile(), LossyProfile()),
    Choice.STRICT: (StrictProfile(),),
    Choice.LOSSY: (LossyProfile(),),
}
#: Bytes of rows in a batch: enough that handing it over costs nothing, little enough that every process has one.
_BATCH: Final = 256 << 10

#: Takes trajectories, name and bytes, and says whether all of them stand now.
Keep: TypeAlias = Callable[[list[tuple[str, bytes]]], bool]


class Batch(NamedTuple):
    """Rows that follow each other. ``is_wanted``: their trajectories are, not only what is wrong with them."""

    lines: list[bytes]
    is_wanted: bool


class Outcome(NamedTuple):
    """What became of a row by itself; whether it fits the rows before it, only who has seen those can tell."""

    #: None: the row does not say which rollout it is of.
    place: Place | None
    #: Whose trajectory it is; None when there is none.
    agent: str | None
    #: Why there is no file; None when there is one.
    problem: str | None
    manifest_line: bytes = b""


class Converted(NamedTuple):
    """What became of a batch. ``is_kept``: its trajectories stand."""

    outcomes: list[Outcome]
    is_kept: bool


def batches(lines: Iterable[bytes], is_wanted: Callable[[], bool]) -> Iterator[Batch]:
    """``lines`` in batches; ``is_wanted`` is asked for each when it is made."""
    batch: list[bytes] = []
    size = 0
    for line in lines:
        batch.append(line)
        size += len(line)
        if size >= _BATCH:
            yield Batch(batch, is_wanted())
            batch, size = [], 0
    if batch:
        yield Batch(batch, is_wanted())


def convert_batch(batch: Batch, context: Context, keep: Keep) -> Converted:
    """What became of each row of ``batch``, whose trajectories are given to ``keep``. Raises what ``keep`` raises."""
    made: list[tuple[str, bytes]] = []
    outcomes = [_convert(line, context, made) for line in batch.lines]
    return Converted(outcomes, batch.is_wanted and keep(made))


def _convert(line: bytes, context: Context, made: list[tuple[str, bytes]]) -> Outcome:
    place = agent = None
    try:
        row = parse_row(line)
        place = place_of(row)
        document = choose(PROFILES[context.profile], row).convert(row, context)
        agent = document.agent.name
        data = document.encode()
    except RowError as error:
        return Outcome(place, agent, str(error))
    except ValueError as error:
        return Outcome(place, agent, f"it cannot be written as a trajectory ({error})")
    name = f"{place}.json"
    made.append((name, data))
    entry = {
        rows.ROLLOUT_INDEX: place.repeat,
        rows.TASK_INDEX: place.task,
        "expected_sha256": hashlib.sha256(data).hexdigest(),
        "trajectory_path": name,
    }
    return Outcome(place, agent, None, jsonl.canonical(entry) + b"\n")

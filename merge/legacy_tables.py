"""Rows of NeMo Gym's files as columns over all files: which row of a rollout counts, and which two cannot both be true."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from collector.errors import RefusedError
from merge.legacy_rows import InventoryColumns, LegacyFile, row_at
from merge.select import repeat_of, task_of

Integers: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Results:
    """The results of one agent over all files, one for each rollout, by rising key; columns as those of a file."""

    keys: Integers
    #: The number of the file that has the row.
    files: Integers
    offsets: Integers
    lengths: Integers
    checksums: Integers
    rewards: Floats
    masked: Flags
    truncated: Flags


@dataclass(frozen=True, slots=True)
class Questions:
    """Which rollouts inventories ask one agent for, by rising key, and where the last row of each task stands."""

    keys: Integers
    tasks: Integers
    files: Integers
    offsets: Integers
    lengths: Integers


def result_rows(files: Sequence[LegacyFile]) -> Results:
    """The rows of all files, one after the other."""
    found = [file.results for file in files]
    integers = [
        [np.asarray(c, dtype=np.int64) for c in (rows.keys, rows.offsets, rows.lengths, rows.checksums)] for rows in found
    ]
    keys, offsets, lengths, checksums = (np.concatenate(columns) for columns in zip(*integers, strict=True))
    numbers = np.repeat(np.arange(len(files)), [len(rows.keys) for rows in found])
    rewards = np.concatenate([np.asarray(rows.rewards, dtype=np.float64) for rows in found])
    masked, truncated = (
        np.frombuffer(b"".join(flags), dtype=np.bool_)
        for flags in ([rows.masked for rows in found], [rows.truncated for rows in found])
    )
    return Results(keys, numbers, offsets, lengths, checksums, rewards, masked, truncated)


def _joined(columns: Iterable[Sequence[int]]) -> Integers:
    return np.concatenate([np.asarray(column, dtype=np.int64) for column in columns])


def results_of(rows: Results, chosen: Integers) -> Results:
    """Of the ``chosen`` rows the first of each rollout."""
    _, first = np.unique(rows.keys[chosen], return_index=True)
    kept = chosen[first]
    return Results(
        rows.keys[kept],
        rows.files[kept],
        rows.offsets[kept],
        rows.lengths[kept],
        rows.checksums[kept],
        rows.rewards[kept],
        rows.masked[kept],
        rows.truncated[kept],
    )


def inventory_rows(files: Sequence[LegacyFile]) -> Questions:
    """The rows of all inventories, one after the other."""
    found = [file.inventory or InventoryColumns() for file in files]
    keys, offsets, lengths = map(_joined, zip(*[(rows.keys, rows.offsets, rows.lengths) for rows in found], strict=True))
    numbers = np.repeat(np.arange(len(files)), [len(rows.keys) for rows in found])
    return Questions(keys, keys >> 32, numbers, offsets, lengths)


def questions_of(rows: Questions, chosen: Integers) -> Questions:
    """What the ``chosen`` rows ask for."""
    # A rollout stands where it was named first, with what was said of it last; of the rollouts of a task the last one counts.
    _, first, which = np.unique(rows.keys[chosen], return_index=True, return_inverse=True)
    last = np.zeros(len(first), dtype=np.int64)
    np.maximum.at(last, which, np.arange(len(chosen)))
    order = np.argsort(first)
    tasks = rows.tasks[chosen][first[order]]
    _, from_end = np.unique(tasks[::-1], return_index=True)
    kept = chosen[last[order][len(tasks) - 1 - from_end]]
    return Questions(np.unique(rows.keys[chosen]), rows.tasks[kept], rows.files[kept], rows.offsets[kept], rows.lengths[kept])


def check_same(files: Sequence[LegacyFile], owners: Integers, rows: Results) -> None:
    """Raise RefusedError for the first row that is another one of a rollout than the first."""
    order = np.lexsort((np.arange(len(owners)), rows.keys, owners))
    keys, names = rows.keys[order], owners[order]
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = (keys[1:] != keys[:-1]) | (names[1:] != names[:-1])
    firsts = order[np.flatnonzero(is_first)[np.cumsum(is_first) - 1]]
    again = np.flatnonzero(~is_first)
    for place in again[np.argsort(order[again])].tolist():
        earlier, later = int(firsts[place]), int(order[place])
        if _bytes_of(files, rows, earlier) != _bytes_of(files, rows, later):
            key = int(rows.keys[later])
            raise RefusedError(
                f"another row of rollout {task_of(key)}-{repeat_of(key)} than {_where(files, rows, earlier)}.",
                "Nobody can tell which counts: remove one.",
                _where(files, rows, later),
            )


def _bytes_of(files: Sequence[LegacyFile], rows: Results, index: int) -> bytes:
    with files[int(rows.files[index])].path.open("rb", buffering=0) as file:
        return row_at(file.fileno(), int(rows.offsets[index]), int(rows.lengths[index]))


def _where(files: Sequence[LegacyFile], rows: Results, index: int) -> str:
    number = int(rows.files[index])
    # Each line is a row.
    first = int(np.searchsorted(rows.files, number))
    return f"{files[number].path}:{index - first + 1}"


def questions_of_tasks(files: Sequence[LegacyFile], questions: Questions) -> list[tuple[int, bytes]]:
    """Each task, rising, with the inventory row that says what it asks."""
    found: list[tuple[int, bytes]] = []
    descriptors: dict[int, int] = {}
    try:
        columns = (questions.tasks, questions.files, questions.offsets, questions.lengths)
        for task, number, offset, length in zip(*(column.tolist() for column in columns), strict=True):
            if number not in descriptors:
                descriptors[number] = os.open(files[number].inventory_path, os.O_RDONLY | os.O_CLOEXEC)
            found.append((task, row_at(descriptors[number], offset, length)))
    finally:
        for descriptor in descriptors.values():
            os.close(descriptor)
    return found

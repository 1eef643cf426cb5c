"""Which rows of NeMo Gym's files count: one for each rollout and each question, and never two that cannot both be true."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from io import FileIO
from pathlib import Path
from typing import Final, NamedTuple, Self

import numpy as np

from collector.errors import RefusedError
from collector.formats.rollout_key import counted_id, task_of
from merge.legacy.columns import Questions, Results
from merge.legacy.files import LegacyFile, LegacyRows
from merge.legacy.lines import line_number
from merge.legacy.rows import question_in
from merge.metrics.array_types import Flags, Integers

#: A thousand inputs need no thousand descriptors.
_MOST_OPEN: Final = 64


class Asked(NamedTuple):
    """Which rollouts inventories ask one agent for, by rising key, and of each task, rising, the row that says what."""

    keys: Integers
    rows: Questions


def union(*parts: Integers) -> Integers:
    """All numbers of ``parts``, each of which rises, once and rising."""
    every = np.concatenate(parts)
    # Merges what rises already.
    every.sort(kind="stable")
    return every[np.diff(every, prepend=-1) != 0]


def is_in(numbers: Integers, known: Integers) -> Flags:
    """Which of ``numbers`` are among ``known``; both rise."""
    places = np.searchsorted(known, numbers)
    found = np.zeros(len(numbers), dtype=np.bool_)
    inside = places < len(known)
    found[inside] = known[places[inside]] == numbers[inside]
    return found


def first_rows(rows: LegacyRows, owners: Integers) -> tuple[Results, Integers]:
    """The first row of each rollout of each owner, and its owner; owners rise, and keys of one do.

    Raises RefusedError when a later row of a rollout is another one.
    """
    # Equal ones stay in the order of the inputs.
    order = np.lexsort((rows.results.keys, owners))
    keys, names = rows.results.keys[order], owners[order]
    is_first = (np.diff(keys, prepend=-1) != 0) | (np.diff(names, prepend=-1) != 0)
    if not np.all(is_first):
        _check_same(rows, order, is_first)
    return rows.results.take(order[is_first]), names[is_first]


def _check_same(rows: LegacyRows, order: Integers, is_first: Flags) -> None:
    results, paths = rows.results, [file.run.rollouts for file in rows.files]
    firsts = order[np.flatnonzero(is_first)[np.cumsum(is_first) - 1]]
    again = np.flatnonzero(~is_first)
    with _Texts(paths) as texts:
        for place in again[np.argsort(order[again])].tolist():
            first, second = (
                _Place(*(int(column[index]) for column in (results.files, results.offsets, results.lengths)))
                for index in (firsts[place], order[place])
            )
            if texts.line(first) != texts.line(second):
                key = int(results.keys[order[place]])
                here, there = (f"{paths[at.file]}:{line_number(paths[at.file], at.offset)}" for at in (second, first))
                raise RefusedError(
                    f"another row of rollout {counted_id(key)} than {there}.",
                    "Nobody can tell which counts: remove one.",
                    here,
                )


class _Place(NamedTuple):
    """Where a line stands in a file with a number."""

    file: int
    offset: int
    length: int


class _Texts:
    """Lines of files, read here and there. Some files stay open; a thousand could need more descriptors than there are."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._open: dict[int, FileIO] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._close()

    def line(self, place: _Place) -> bytes:
        """The line there, newline included."""
        file = self._open.get(place.file)
        if file is None:
            if len(self._open) == _MOST_OPEN:
                self._close()
            file = self._open[place.file] = FileIO(self._paths[place.file])
        data = os.pread(file.fileno(), place.length, place.offset)
        return data if data.endswith(b"\n") else data + b"\n"

    def _close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()


def asked_of(questions: Questions) -> Asked:
    """What ``questions`` of one agent ask for: of the rollouts of a task the one that was named last, in its last row."""
    order = np.argsort(questions.keys, kind="stable")
    keys = questions.keys[order]
    begins, ends = np.flatnonzero(np.diff(keys, prepend=-1)), np.flatnonzero(np.diff(keys, append=-1))
    first, last, keys = order[begins], order[ends], keys[begins]
    # A rollout that is named again stands where it was named first.
    latest = np.maximum.reduceat(first, np.flatnonzero(np.diff(keys >> 32, prepend=-1)))
    row_of = np.zeros(len(order), dtype=np.int64)
    row_of[first] = last
    return Asked(keys, questions.take(row_of[latest]))


def questions_in(files: Sequence[LegacyFile], rows: Questions) -> Iterator[tuple[int, bytes]]:
    """Each task with what the inventory ``rows`` ask, in their order."""
    places = map(_Place, *(column.tolist() for column in (rows.files, rows.offsets, rows.lengths)))
    with _Texts([file.run.inventory for file in files]) as texts:
        for key, place in zip(rows.keys.tolist(), places, strict=True):
            yield task_of(key), question_in(texts.line(place))

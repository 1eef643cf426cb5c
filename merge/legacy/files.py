"""Files of NeMo Gym, read side by side into columns over all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import numpy as np

from collector.artifacts import RunArtifacts
from merge.fan_out import run_tasks
from merge.inputs.shards import FileMark
from merge.legacy.columns import NO_NAME, Names, QuestionColumns, Questions, ResultColumns, Results
from merge.legacy.lines import Stretch, read_rows
from merge.legacy.rows import FAILURE, INVENTORY, RESULT, FailureRow, InventoryRow, ResultRow, RowKind

_Columns = TypeVar("_Columns", Results, Questions)

#: Bytes that one process reads at a time: some for each even of one large file, and small files together.
_SHARE: Final = 16 << 20
#: Bytes of files below which one process is done before a second one has begun.
_WORTH_IT: Final = 32 << 20


class LegacyFile(NamedTuple):
    """One input: its rollouts and companions, and how to tell that those which are there are still the same."""

    run: RunArtifacts
    marks: dict[Path, FileMark]

    @classmethod
    def at(cls, run: RunArtifacts) -> LegacyFile:
        """The input at ``run`` as it stands now."""
        paths = (run.rollouts, run.failures, run.inventory)
        return cls(run, {path: FileMark.of(path) for path in paths if path.exists()})

    @property
    def has_inventory(self) -> bool:
        """Without one nobody knows what was expected."""
        return self.run.inventory in self.marks


class Failure(NamedTuple):
    """A failure row of the input with the number ``file``."""

    file: int
    row: FailureRow


@dataclass(frozen=True, slots=True)
class LegacyRows:
    """What the inputs hold, in their order. ``notes`` are for people."""

    files: Sequence[LegacyFile]
    names: Names
    results: Results
    questions: Questions
    failures: Sequence[Failure]
    notes: tuple[str, ...]


class _Piece(NamedTuple):
    """A part of a file of the input with the number ``file``."""

    file: int
    stretch: Stretch
    kind: RowKind[ResultRow] | RowKind[FailureRow] | RowKind[InventoryRow]


class _Found(NamedTuple):
    """What some pieces hold; names count in here only."""

    names: list[str]
    results: Results
    questions: Questions
    failures: list[Failure]
    notes: list[str]


def read_legacy_files(files: Sequence[LegacyFile]) -> LegacyRows:
    """The rows of ``files``. Raises CorruptArtifactError for a line that is no row; a torn last one is passed over."""
    total = sum(mark.size_bytes for file in files for mark in file.marks.values())
    tasks = [partial(_read, share) for share in _shares(_pieces(files))]
    names = Names()
    # Arrays of no rows come of no pieces, which is what empty files have.
    found = [_renamed(part, names) for part in (_read([]), *run_tasks(tasks, is_worth_it=total >= _WORTH_IT))]
    return LegacyRows(
        files,
        names,
        _joined([part.results for part in found]),
        _joined([part.questions for part in found]),
        [failure for part in found for failure in part.failures],
        tuple(note for part in found for note in part.notes),
    )


def _pieces(files: Sequence[LegacyFile]) -> Iterator[_Piece]:
    """All files from end to end, in the order in which what is wrong with them is told."""
    for number, (run, marks) in enumerate(files):
        for path, kind in ((run.rollouts, RESULT), (run.failures, FAILURE), (run.inventory, INVENTORY)):
            size = marks[path].size_bytes if path in marks else 0
            for begin in range(0, size, _SHARE):
                yield _Piece(number, Stretch(path, begin, min(begin + _SHARE, size)), kind)


def _shares(pieces: Iterable[_Piece]) -> Iterator[list[_Piece]]:
    """``pieces`` in lists of about ``_SHARE`` bytes: a thousand small files are no thousand tasks."""
    share: list[_Piece] = []
    size = 0
    for piece in pieces:
        share.append(piece)
        size += piece.stretch.end - piece.stretch.begin
        if size >= _SHARE:
            yield share
            share, size = [], 0
    if share:
        yield share


def _read(share: Sequence[_Piece]) -> _Found:
    names, results, questions = Names(), ResultColumns(), QuestionColumns()
    failures: list[Failure] = []
    notes: list[str] = []
    for file, stretch, kind in share:
        if kind is RESULT:
            for found in read_rows(stretch, RESULT, notes):
                results.add(file, found, names)
        elif kind is INVENTORY:
            for found in read_rows(stretch, INVENTORY, notes):
                questions.add(file, found, names)
        else:
            failures.extend(Failure(file, row) for found in read_rows(stretch, FAILURE, notes) for row in found.rows)
    return _Found(names.all, results.made(), questions.made(), failures, notes)


def _renamed(found: _Found, names: Names) -> _Found:
    """``found`` with the numbers that its names have in ``names``."""
    # The last one is where the index NO_NAME finds it.
    numbers = np.array([*names.numbers(found.names), NO_NAME], dtype=np.int64)
    results = found.results._replace(agents=numbers[found.results.agents], servers=numbers[found.results.servers])
    return found._replace(results=results, questions=found.questions._replace(agents=numbers[found.questions.agents]))


def _joined(parts: Sequence[_Columns]) -> _Columns:
    return parts[0]._make(map(np.concatenate, zip(*parts, strict=True)))

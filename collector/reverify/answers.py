"""The answers of a run as places in its files, one a rollout: which there are, and each read when it is asked for.

Memory: about 70 bytes a rollout, whatever the rows weigh.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, Self

from collector import jsonl
from collector.errors import CorruptArtifactError, DatasetError, RefusedError, StorageError, kind_of
from collector.formats import rows
from collector.formats.rollout_key import counted_id
from collector.outcome_checks import RESULT_KEYS
from collector.shard.recorded import ended
from collector.state.codes import Past

#: Of multi-stage runs: which answer of several a row holds is not known here.
STAGE: Final = "stage_index"
#: What NeMo Gym adds beside the ``_ng_`` keys, and what gradings add here: no part of what a rollout was asked with.
_ADDED: Final = frozenset(
    {"ng_trajectory", "ng_perf", "ng_model_call_capture", "ng_agent_observations", "reverified", "judge", "judge_input_tokens",
     "judge_output_tokens", "extracted_answer"}
)  # fmt: skip
_ASKED: Final = frozenset({rows.TASK_INDEX, rows.ROLLOUT_INDEX, rows.ROLLOUT_ID, rows.ENVIRONMENT_SERVER})


class Kind(IntEnum):
    """What is saved of a rollout."""

    #: No answer that may be graded again.
    ABSENT = 0
    #: A result: an answer with its verdict.
    RESULT = 1
    #: An answer whose judge failed.
    UNJUDGED = 2


@dataclass(frozen=True, slots=True)
class Span:
    """The bytes of one line, newline included."""

    path: Path
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """One rollout of a source. ``line`` None: what it was asked with has to be taken from its row."""

    key: int
    rollout_id: str
    kind: Kind
    line: Span | None = None
    row: Span | None = None
    checksum: int = 0
    past: Past | None = None
    #: Why there is no answer, when there is none.
    trouble: str = ""


@dataclass(slots=True)
class Answers:
    """The rollouts of a source in (task, repeat) order. Close it, or use it as a context manager."""

    files: list[Path] = field(default_factory=list[Path])
    keys: array[int] = field(default_factory=lambda: array("q"))
    kinds: bytearray = field(default_factory=bytearray)
    #: Why a rollout is not graded again, by key.
    left_out: dict[int, str] = field(default_factory=dict[int, str])
    _lines: _Spans = field(default_factory=lambda: _Spans())  # noqa: PLW0108 - defined below
    _rows: _Spans = field(default_factory=lambda: _Spans())  # noqa: PLW0108 - defined below
    _checksums: array[int] = field(default_factory=lambda: array("L"))
    _descriptors: dict[Path, int] = field(default_factory=dict[Path, int])

    @classmethod
    def of(cls, candidates: Iterable[Candidate]) -> Answers:
        """The answers of ``candidates``. Raises RefusedError when two are of one rollout."""
        made = cls()
        numbers: dict[Path, int] = {}
        for one in candidates:
            made._add(one, numbers)
        made.files = list(numbers)
        made._sort()
        for before, key in zip(made.keys, made.keys[1:], strict=False):
            if before == key:
                what = f"rollout {counted_id(key)} is there twice."
                raise RefusedError(what, "Name files of one run, each once.", made.files[0] if made.files else "")
        return made

    def __len__(self) -> int:
        return len(self.keys)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def find(self, key: int) -> int | None:
        """The position of the rollout with ``key``."""
        position = bisect_left(self.keys, key)
        return position if position < len(self.keys) and self.keys[position] == key else None

    def row(self, position: int) -> dict[str, Any] | None:
        """The saved row with the answer; None without one.

        Raises CorruptArtifactError when the file holds another, StorageError when it cannot be read.
        """
        if self.kinds[position] == Kind.ABSENT:
            return None
        return jsonl.loads(self._row_bytes(position))

    def lines(self, count: int | None = None) -> Iterator[bytes]:
        """What each rollout was asked with: its materialized row as a line; of the first ``count`` only."""
        for position in range(len(self.keys) if count is None else min(count, len(self.keys))):
            span = self._lines.at(position, self.files)
            yield self._asked(position) if span is None else ended(self._read(span))

    def digest(self) -> str:
        """SHA-256 over which rollouts there are and which row each answer is, in hex."""
        hasher = hashlib.sha256()
        for part in (self.keys, self.kinds, self._rows.lengths, self._checksums):
            hasher.update(part)
        return hasher.hexdigest()

    def _add(self, one: Candidate, numbers: dict[Path, int]) -> None:
        self.keys.append(one.key)
        self.kinds.append(one.kind)
        for spans, span in ((self._lines, one.line), (self._rows, one.row)):
            spans.add(span, -1 if span is None else numbers.setdefault(span.path, len(numbers)))
        self._checksums.append(one.checksum)

    def _sort(self) -> None:
        if all(before <= key for before, key in zip(self.keys, self.keys[1:], strict=False)):
            return
        order = sorted(range(len(self.keys)), key=self.keys.__getitem__)
        self.keys = array("q", (self.keys[i] for i in order))
        self.kinds = bytearray(self.kinds[i] for i in order)
        self._checksums = array("L", (self._checksums[i] for i in order))
        self._lines.sort(order)
        self._rows.sort(order)

    def _row_bytes(self, position: int) -> bytes:
        span = self._rows.at(position, self.files)
        if span is None:
            raise AssertionError("a rollout with an answer has its place")
        line = ended(self._read(span))
        if zlib.crc32(line) != self._checksums[position]:
            raise CorruptArtifactError(span.path, 0, f"the row at byte {span.offset} is not the one that was read before.")
        return line

    def _asked(self, position: int) -> bytes:
        row = jsonl.loads(self._row_bytes(position))
        return jsonl.dumps({key: value for key, value in row.items() if is_asked(key)}) + b"\n"

    def _read(self, span: Span) -> bytes:
        try:
            if span.path not in self._descriptors:
                self._descriptors[span.path] = os.open(span.path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self._descriptors[span.path], span.length, span.offset)
        except OSError as error:
            raise unreadable(span.path, error) from error


class _Spans:
    """Spans as columns; a file number of -1 is no span."""

    def __init__(self) -> None:
        self.numbers: array[int] = array("i")
        self.offsets: array[int] = array("q")
        self.lengths: array[int] = array("q")

    def add(self, span: Span | None, number: int) -> None:
        self.numbers.append(number)
        self.offsets.append(0 if span is None else span.offset)
        self.lengths.append(0 if span is None else span.length)

    def at(self, position: int, files: list[Path]) -> Span | None:
        number = self.numbers[position]
        return None if number < 0 else Span(files[number], self.offsets[position], self.lengths[position])

    def sort(self, order: list[int]) -> None:
        self.numbers = array("i", (self.numbers[i] for i in order))
        self.offsets = array("q", (self.offsets[i] for i in order))
        self.lengths = array("q", (self.lengths[i] for i in order))


def unreadable(path: Path, error: OSError) -> RefusedError | StorageError:
    """What to tell of a file of answers that the disk, or its owner, does not give."""
    return kind_of(error)(
        f"it cannot be read: {error.strerror}.", "Mend that, then go on: what is recorded stays recorded.", path
    )


def is_asked(key: str) -> bool:
    """Whether a key of a result row can be one of the materialized row that the rollout was asked with."""
    if key.startswith("_ng_"):
        return key in _ASKED
    return key not in RESULT_KEYS and key not in _ADDED


def refuse_stage(line: bytes, where: str) -> None:
    """Raise DatasetError for a row of a multi-stage run."""
    if b'"stage_index"' in line and STAGE in jsonl.loads(line):
        what = "the row is one stage of several (stage_index), and which answer to grade is not known."
        raise DatasetError(what, "Multi-stage runs are not graded again here.", where)

"""Lines of NeMo Gym's files as rows: decoded block by block, and one by one where a line is no plain row."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from collector import jsonl
from collector.errors import CorruptArtifactError
from collector.formats import rows
from merge.legacy.rows import RowKind
from merge.line_blocks import Block, read_blocks

T = TypeVar("T")
_Line: TypeAlias = bytes | memoryview

_ADVICE: Final = "Restore the file, or leave it out."
#: Bytes looked through at once for newlines.
_CHUNK: Final = 64 << 10


class Stretch(NamedTuple):
    """The lines of a file that begin at one of its bytes from ``begin`` on and before ``end``."""

    path: Path
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Rows(Generic[T]):
    """Rows that follow each other in a file: where each begins, and its line, which ends with a newline in any case.

    Lines hold until the next rows are asked for.
    """

    rows: Sequence[T]
    offsets: Sequence[int]
    lines: Sequence[_Line]


def read_rows(stretch: Stretch, kind: RowKind[T], notes: list[str]) -> Iterator[Rows[T]]:
    """The rows of ``stretch``, in blocks. Blank lines are passed over; so is a torn last one, and ``notes`` say so.

    Raises CorruptArtifactError for any other line that is no row of its ``kind``.
    """
    with stretch.path.open("rb", buffering=0) as file:
        descriptor = file.fileno()
        offset, end = (_next_line(descriptor, place) for place in (stretch.begin, stretch.end))
        for block in read_blocks(descriptor, offset, end):
            found = _at_once(block, offset, kind)
            yield _one_by_one(stretch.path, block, offset, kind, notes) if found is None else found
            offset += block.size


def _next_line(descriptor: int, offset: int) -> int:
    """Where the first line begins that begins at ``offset`` or behind it; the end of the file when none does."""
    if offset == 0:
        return 0
    # A line begins behind a newline.
    offset -= 1
    while chunk := os.pread(descriptor, _CHUNK, offset):
        found = chunk.find(b"\n") + 1
        if found:
            return offset + found
        offset += len(chunk)
    return offset


def _at_once(block: Block, offset: int, kind: RowKind[T]) -> Rows[T] | None:
    """The rows of ``block``, which begins at ``offset``; None when one of its lines needs a closer look."""
    lines = list(_lines_of(block))
    try:
        found = list(map(kind.decoder.decode, lines))
    except (msgspec.DecodeError, RecursionError):
        return None
    return Rows(found, _offsets_of(lines, offset), lines)


def _one_by_one(path: Path, block: Block, offset: int, kind: RowKind[T], notes: list[str]) -> Rows[T]:
    found: list[T] = []
    begins: list[int] = []
    texts: list[_Line] = []
    lines = list(map(bytes, _lines_of(block)))
    for line, begin in zip(lines, _offsets_of(lines, offset), strict=True):
        if line.isspace():
            continue
        try:
            found.append(rows.parse_part(kind.decoder, line))
            begins.append(begin)
            texts.append(line)
        except ValueError as error:
            has_newline = begin + len(line) <= offset + block.size
            number = line_number(path, begin)
            if has_newline or not _is_torn(line):
                raise CorruptArtifactError(
                    path, number, f"not {kind.name} ({error}).", rows.cure_for(error, _ADVICE)
                ) from error
            notes.append(f"{path}:{number}: the last line is torn and was passed over.")
    return Rows(found, begins, texts)


def _lines_of(block: Block) -> Iterator[_Line]:
    """Each line of ``block``, with the newline that it has or lacks."""
    find, view, begin = block.buffer.find, block.view(), 0
    while end := find(b"\n", begin, block.size) + 1:
        yield view[begin:end]
        begin = end
    if begin < block.size:
        yield bytes(view[begin:]) + b"\n"


def _offsets_of(lines: Sequence[_Line], offset: int) -> list[int]:
    """Where each of ``lines`` begins, the first of them at ``offset``."""
    return list(accumulate(map(len, lines[:-1]), initial=offset))


def line_number(path: Path, offset: int) -> int:
    """The number of the line that begins at ``offset``, from 1."""
    number = 1
    with path.open("rb", buffering=0) as file:
        while offset > 0 and (chunk := file.read(min(_CHUNK, offset))):
            number += chunk.count(b"\n")
            offset -= len(chunk)
    return number


def _is_torn(line: bytes) -> bool:
    """Whether the text was cut short; whole JSON that only lacks its newline was not, and must be a row."""
    try:
        jsonl.loads(line)
    except ValueError:
        return True
    return False

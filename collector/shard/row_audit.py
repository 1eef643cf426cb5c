"""The row files held against the journal: what a crash left is repaired later, what no crash explains is refused.

A row without its event is recovered. A torn last line is cut, or ended when it is whole. An event without its row, a second
row for one attempt, a row of another run: CorruptArtifactError with file and line. Reads only bytes no event accounts for.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from collector.artifacts import RunArtifacts
from collector.errors import CorruptArtifactError
from collector.formats import rows
from collector.formats.events import Failed, Lost, Migrated, Success
from collector.formats.inventory import line_blocks
from collector.formats.rows import RowStamp
from collector.shard.invalid_judge import is_flagged, migrated_event, migrated_line, read_result
from collector.shard.recovered import failed_event, success_event
from collector.state.codes import RESULT_CODES
from collector.state.history import History
from collector.state.rollout_table import HistoryError
from collector.state.row_ranges import RowRanges
from collector.text.counted import agreeing, counted


class RowFile(StrEnum):
    """The two files that hold rows."""

    ROLLOUTS = "rollouts"
    FAILURES = "failures"


@dataclass(frozen=True, slots=True)
class Repair:
    """The unfinished last line of ``path``: to be ended with a newline when it is whole, to be cut at ``cut_at`` otherwise."""

    path: Path
    cut_at: int | None


@dataclass(slots=True)
class Repairs:
    """What the next session does before anything else, in this order: ends and cuts, then events, then cuts of lost rows."""

    lines: list[Repair] = field(default_factory=list[Repair])
    recovered: list[Success | Failed | Migrated] = field(default_factory=list[Success | Failed | Migrated])
    lost: list[Lost] = field(default_factory=list[Lost])
    cuts: list[Repair] = field(default_factory=list[Repair])
    #: Rows of a collector that had lost the shard: kept in their file, and never counted.
    ignored_rows: int = 0


class RowAudit:
    """One pass over one row file of a shard; applies what it recovers to ``history`` and lists the repairs."""

    def __init__(
        self,
        artifacts: RunArtifacts,
        file: RowFile,
        *,
        run_id: str,
        history: History,
        index: dict[str, int],
        repairs: Repairs,
    ) -> None:
        self._file = file
        self._results = artifacts.rollouts
        self._path = artifacts.rollouts if file is RowFile.ROLLOUTS else artifacts.failures
        self._artifacts = artifacts
        self._run_id = run_id
        self._history = history
        self._ranges: RowRanges = history.main if file is RowFile.ROLLOUTS else history.sidecar
        self._index = index
        self._repairs = repairs

    def run(self) -> None:
        """Audit the file. Raises CorruptArtifactError."""
        size = self._path.stat().st_size
        if size < self._ranges.end:
            self._lose_last(size)
            return
        for begin, end in self._ranges.unaccounted(size):
            self._read_gap(begin, self._bytes(begin, end), is_last=end == size)

    def _bytes(self, begin: int, end: int) -> bytes:
        with self._path.open("rb") as handle:
            return os.pread(handle.fileno(), end - begin, begin)

    def _lose_last(self, size: int) -> None:
        last = self._ranges.last
        if last is None or size <= last.offset:
            what = f"it records a row up to byte {self._ranges.end} of {self._path.name}, which ends at byte {size}."
            raise CorruptArtifactError(self._artifacts.journal, self._ranges.last_line, what)
        remains = self._bytes(last.offset, size)
        if len(remains) == last.length - 1 and zlib.crc32(remains + b"\n") == last.checksum:
            self._repairs.lines.append(Repair(self._path, None))
            return
        if remains.count(b"\n"):
            raise CorruptArtifactError(self._path, 0, f"the row at byte {last.offset} is not the one that was recorded.")
        lost = Lost(
            run_id=self._run_id,
            session=self._history.session,
            seq=-1,
            at="",
            rollout_id=last.rollout_id,
            attempt_index=last.attempt_index,
            file=self._file.value,
            offset=last.offset,
            reason=f"{counted(len(remains), 'byte', of=last.length)} {agreeing(len(remains), 'are')} left",
        )
        self._history.lose(self._index[last.rollout_id], lost)
        self._repairs.lost.append(lost)
        self._repairs.cuts.append(Repair(self._path, last.offset))

    def _read_gap(self, offset: int, data: bytes, *, is_last: bool) -> None:
        while data:
            end = data.find(b"\n") + 1
            line, data = (data[:end], data[end:]) if end else (data, b"")
            if end:
                self._recover(offset, line)
            else:
                self._recover_tail(offset, line, is_last=is_last)
            offset += len(line)

    def _recover_tail(self, offset: int, line: bytes, *, is_last: bool) -> None:
        if not is_last:
            raise self._corrupt(offset, "part of a row between recorded rows")
        try:
            rows.parse_stamp(line)
        except ValueError as error:
            if not may_begin(line.rstrip(b"\0"), b"{"):
                raise self._corrupt(offset, "the last line is no beginning of a row") from error
            self._repairs.lines.append(Repair(self._path, offset))
            return
        self._recover(offset, line + b"\n")
        self._repairs.lines.append(Repair(self._path, None))

    def _recover(self, offset: int, line: bytes) -> None:
        """A whole row without an event: the crash came between the two. It counts when its attempt waits for it."""
        try:
            stamp = rows.parse_stamp(line)
            event = self._outcome_of(stamp, offset, line)
        except ValueError as error:
            raise self._corrupt(offset, f"not a row of this run ({error})") from error
        position = self._index.get(stamp.rollout_id)
        if stamp.run_id != self._run_id:
            raise self._corrupt(offset, f"a row of run {stamp.run_id}, in the files of run {self._run_id}")
        if position is None:
            raise self._corrupt(offset, f"rollout {stamp.rollout_id!r} is not in the inventory")
        session = -1 if stamp.session is None else stamp.session
        latest = self._history.latest[position]
        if session > self._history.session or (session == self._history.session and stamp.attempt > latest):
            raise self._corrupt(offset, f"attempt {stamp.attempt} of {stamp.rollout_id} was never dispatched")
        if stamp.attempt == latest and self._history.owner[position] == session:
            if stamp.migrated:
                self._migrate(offset, position, line)
            else:
                self._settle(offset, position, event)
        else:
            # A collector that lost the shard wrote it after its successor began: kept in the file, and never wins.
            self._repairs.ignored_rows += 1

    def _settle(self, offset: int, position: int, event: Success | Failed) -> None:
        try:
            self._history.settle(position, event)
        except HistoryError as error:
            raise self._corrupt(offset, str(error)) from error
        self._repairs.recovered.append(event)

    def _migrate(self, offset: int, position: int, line: bytes) -> None:
        """A migration that died before its event. It counts when the row is what the result beside it becomes, to the byte."""
        history = self._history
        if history.codes[position] not in RESULT_CODES:
            raise self._corrupt(offset, "a result that became a failure, of an attempt that has no result")
        with self._results.open("rb") as file:
            result = read_result(file.fileno(), self._results, history, position)
        stamp = rows.parse_stamp(line)
        # Deliverables may have come or gone since; everything else of the row follows from the result.
        exact = [
            migrated_line(
                result, rollout_id=stamp.rollout_id, run_id=self._run_id, session=history.owner[position],
                attempt=stamp.attempt, may_reuse=may_reuse,
            )
            for may_reuse in (True, False)
        ]  # fmt: skip
        if not is_flagged(result) or line not in exact:
            raise self._corrupt(offset, f"a failure made of another result than that of {stamp.rollout_id}")
        event = migrated_event(line, offset=offset, run_id=self._run_id)
        history.migrate(position, event)
        self._repairs.recovered.append(event)

    def _outcome_of(self, stamp: RowStamp, offset: int, line: bytes) -> Success | Failed:
        if self._file is RowFile.FAILURES:
            return failed_event(rows.parse_failure(line)[1], stamp, offset, line, self._run_id)
        return success_event(stamp, offset, line, self._run_id)

    def _corrupt(self, offset: int, what: str) -> CorruptArtifactError:
        return CorruptArtifactError(self._path, _line_number(self._path, offset), f"{what}.")


def may_begin(tail: bytes, head: bytes) -> bool:
    """Whether a line that begins with ``head`` could have been cut to ``tail``.

    NUL bytes at the end are left out by the caller: some file systems keep the length of what they lost.
    """
    return (tail.startswith(head) or head.startswith(tail)) and b"\0" not in tail


def _line_number(path: Path, offset: int) -> int:
    number = 1
    for block in line_blocks(path):
        if offset < len(block):
            return number + block.count(b"\n", 0, offset)
        offset -= len(block)
        number += block.count(b"\n")
    return number

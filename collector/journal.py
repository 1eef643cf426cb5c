"""The journal of a live session with its two row files: each batch is durable, in order, before anybody is told.

Order inside a batch: rows to the main file and the failures file, those files synced, then the events of the batch to the
journal in one write, then the journal synced, and only then is anybody told. So a row is durable before its outcome event,
and a dispatch is durable before its request leaves.

The fence is looked at before the rows, before the events, and once more before anybody is told. A successor of an owner that
may live works on files of its own, so whatever a late write of that owner says, it says it where nobody reads.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from collector.artifacts import RunArtifacts
from collector.durable import AppendFile
from collector.errors import FencedError, kind_of
from collector.formats import events
from collector.formats.events import Dispatched, Event, Failed, Migrated, OmittedEvent, SessionEnded, SessionStarted, Success
from collector.shard.lock import ShardLock

#: Events that are complete but for what only the commit knows: session, sequence number, time, and the row's place.
Draft: TypeAlias = SessionStarted | Dispatched | Success | Failed | Migrated | OmittedEvent | events.Lost | SessionEnded

#: Tuples, made once: a union of types is made anew each time it is written.
_FAILURES: Final = (Failed, Migrated)
_WITH_ROW: Final = (Success, Failed, Migrated)


class Entry(msgspec.Struct, frozen=True):
    """One event to commit, with the inventory index of its rollout and the row it speaks of, newline included."""

    draft: Draft
    index: int = -1
    row: bytes | None = None


class Journal:
    """The three open files of a live session. Not thread-safe: one caller at a time.

    ``journal_size``: the bytes of the journal that the session knows; more by now were written by somebody else.
    """

    def __init__(self, artifacts: RunArtifacts, lock: ShardLock, *, session: int, journal_size: int, is_synced: bool) -> None:
        self._main = AppendFile(artifacts.rollouts, must_exist=True)
        self._failures = AppendFile(artifacts.failures, must_exist=True)
        self._journal = AppendFile(artifacts.journal, must_exist=True)
        self._lock = lock
        self._session = session
        self._seq = 0
        self._journal_end = journal_size
        self._sync = is_synced

    def commit(self, batch: list[Entry]) -> list[Event]:
        """Make ``batch`` durable, and return its events as written.

        Raises FencedError when the shard is lost: what was written until then is not acknowledged, and a successor either
        read it before it began or will never see it. StorageError (a full disk, say) leaves a prefix that the next session
        repairs. This journal must not be used again after either.
        """
        self.check()
        # Recovered ones have no row here: they say where theirs stands.
        fresh = [entry for entry in batch if entry.row is not None]
        places: dict[int, int] = {}
        if fresh:
            self._write_rows(self._main, [entry for entry in fresh if isinstance(entry.draft, Success)], places)
            self._write_rows(self._failures, [entry for entry in fresh if isinstance(entry.draft, _FAILURES)], places)
            self.check()
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        written = [self._stamp(entry, at, places) for entry in batch]
        self._append_events(written)
        self.check()
        return written

    def repair(self, path: Path, cut_at: int | None) -> None:
        """End the unfinished last line of one of the files when it is whole (``cut_at`` None), cut the file otherwise."""
        file = next(file for file in (self._main, self._failures, self._journal) if file.path == path)
        self.check()
        if cut_at is None:
            file.end_line()
        else:
            file.cut(cut_at)
        if file is self._journal:
            self._journal_end = file.size()

    def check(self) -> None:
        """Raise FencedError unless lock and journal are still this session's alone."""
        self._lock.check()
        for file in (self._journal, self._main, self._failures):
            is_grown = file is self._journal and file.size() != self._journal_end
            if is_grown or not file.is_still_at_its_path():
                raise FencedError(
                    f"the file was {'written by another session' if is_grown else 'moved or replaced'} under this collector.",
                    "It stops without writing.",
                    file.path,
                )

    def failure_row(self, offset: int, length: int) -> bytes:
        """A recorded row of the failures file. Raises StorageError."""
        with _explained(self._failures, "read"):
            return self._failures.read_range(offset, length)

    def close(self) -> None:
        """Close the files; everything committed is durable already."""
        for file in (self._main, self._failures, self._journal):
            file.close()

    def _write_rows(self, file: AppendFile, entries: list[Entry], places: dict[int, int]) -> None:
        """Write the rows of ``entries``, and add to ``places`` where each stands, by the identity of its entry."""
        if not entries:
            return
        rows = [entry.row or b"" for entry in entries]
        with _explained(file):
            offset = file.append(b"".join(rows))
            if self._sync:
                file.sync()
        places.update(zip(map(id, entries), accumulate(map(len, rows), initial=offset), strict=False))

    def _stamp(self, entry: Entry, at: str, places: dict[int, int]) -> Event:
        draft, row = entry.draft, entry.row
        seq, self._seq = self._seq, self._seq + 1
        if row is None or not isinstance(draft, _WITH_ROW):
            return msgspec.structs.replace(draft, session=self._session, seq=seq, at=at)
        return msgspec.structs.replace(
            draft, session=self._session, seq=seq, at=at,
            offset=places[id(entry)], length=len(row), checksum=zlib.crc32(row),
        )  # fmt: skip

    def _append_events(self, written: list[Event]) -> None:
        data = b"".join(map(events.encode, written))
        with _explained(self._journal):
            offset = self._journal.append(data)
        if offset != self._journal_end:
            raise FencedError("another session wrote to the journal.", "This collector stops.", self._journal.path)
        self._journal_end = offset + len(data)
        if self._sync:
            with _explained(self._journal):
                self._journal.sync()


@contextmanager
def _explained(file: AppendFile, what: str = "written") -> Generator[None]:
    try:
        yield
    except OSError as error:
        cure = "Mend that, then resume: what is recorded stays recorded."
        raise kind_of(error)(f"it cannot be {what}: {error.strerror}.", cure, file.path) from error

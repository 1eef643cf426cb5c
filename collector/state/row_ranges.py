"""Which bytes of a row file the journal accounts for. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from collector.formats.events import Failed, Migrated, Success


@dataclass(slots=True)
class RowRanges:
    """The byte ranges of one file that events account for, in journal order, and where they leave gaps."""

    end: int = 0
    #: The row that ends at ``end``, and the journal line that recorded it.
    last: Success | Failed | Migrated | None = None
    last_line: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    #: Ranges that begin before ``end``: a row of an older session that landed between others.
    early: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def add(self, event: Success | Failed | Migrated, line: int) -> None:
        """Account for the row of ``event``."""
        if event.offset < self.end:
            self.early.append((event.offset, event.offset + event.length))
            return
        if event.offset > self.end:
            self.gaps.append((self.end, event.offset))
        self.end = event.offset + event.length
        self.last = event
        self.last_line = line

    def cut(self, offset: int) -> None:
        """The last row is gone: the file is to end at ``offset``."""
        self.end = offset
        self.last = None

    def unaccounted(self, size: int) -> list[tuple[int, int]]:
        """The ranges of a file of ``size`` bytes that no event accounts for, in order."""
        open_ranges = [*self.gaps, *([(self.end, size)] if size > self.end else [])]
        for begin, end in sorted(self.early):
            open_ranges = [part for whole in open_ranges for part in _without(whole, begin, end)]
        return open_ranges


def _without(whole: tuple[int, int], begin: int, end: int) -> list[tuple[int, int]]:
    low, high = whole
    if end <= low or begin >= high:
        return [whole]
    parts = [(low, begin), (end, high)]
    return [(first, last) for first, last in parts if first < last]

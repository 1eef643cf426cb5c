"""When collectors held a shard, by its journal: each session from its first to its last event, and how it ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from collector.formats import events
from collector.formats.events import SessionEnded, SessionStarted, Success
from collector.formats.inventory import line_blocks


@dataclass(slots=True)
class SessionSpan:
    """One incarnation of a collector on a shard. Times are seconds since the epoch."""

    shard: int
    number: int
    begin: float
    end: float
    host: str
    job_id: str | None
    #: Why it let go; None: it was cut off (preempted, killed, lost its node) or is still at work.
    reason: str | None = None
    completed: int = 0
    #: Whether a later session took over, which proves that this one is over.
    is_followed: bool = False

    @property
    def is_cut_off(self) -> bool:
        return self.reason is None and self.is_followed


def spans_of(journal: Path, shard: int) -> list[SessionSpan]:
    """The sessions of ``journal`` in order. A torn last line, which a reader may meet at any time, is passed over."""
    found: dict[int, SessionSpan] = {}
    for event in _events(journal):
        at = _seconds(event.at)
        if isinstance(event, SessionStarted):
            found[event.session] = SessionSpan(shard, event.session, at, at, event.host, event.job_id)
        span = found.get(event.session)
        if span is not None:
            span.end = max(span.end, at)
            span.completed += isinstance(event, Success)
            if isinstance(event, SessionEnded):
                span.reason = event.reason
    spans = list(found.values())
    for span in spans[:-1]:
        span.is_followed = True
    return spans


def _events(journal: Path) -> Iterator[events.Event]:
    for block in line_blocks(journal):
        yield from events.parse_many(block[: block.rfind(b"\n") + 1])


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()

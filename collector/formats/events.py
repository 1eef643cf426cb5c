"""The journal's format: one event a line, as frozen types with encode and parse beside them. Pure; touches no disk.

Format 1. Every event carries ``schema_version, run_id, session, seq, at, event``. ``session`` is the fence: an event of a
session older than one already begun is kept and never wins. ``seq`` counts from 0 within its session without a gap.
Offsets and lengths are bytes, newline included; a checksum is the CRC-32 of exactly those bytes.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

FORMAT: Final = 1


class _Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="event", gc=False):
    schema_version: int = FORMAT
    run_id: str
    session: int
    seq: int
    at: str


class SessionStarted(_Event, frozen=True, tag="session_started"):
    """A collector took the shard. The number is one more than any before it in this journal."""

    reason: str
    host: str
    pid: int
    job_id: str | None = None
    restart_count: int | None = None
    version: str | None = None
    #: How the shard's lock was held.
    lock: str | None = None


class Dispatched(_Event, frozen=True, tag="dispatched"):
    """An attempt is about to leave; durable before its request does."""

    rollout_id: str
    attempt_index: int


class Success(_Event, frozen=True, tag="success"):
    """An attempt completed; its row stands in the main file at ``offset``."""

    rollout_id: str
    attempt_index: int
    offset: int
    length: int
    checksum: int
    #: None: completed and deliberately unscored.
    reward: float | int | None
    masked: bool = False
    truncated: bool = False
    elapsed_s: float | None = None
    recovered: bool = False


class Failed(_Event, frozen=True, tag="failure"):
    """An attempt failed; its row stands in the failures file at ``offset``."""

    rollout_id: str
    attempt_index: int
    offset: int
    length: int
    checksum: int
    failure_class: str
    kind: str | None
    terminal: bool
    reason: str
    elapsed_s: float | None = None
    recovered: bool = False


class Migrated(_Event, frozen=True, tag="migrated"):
    """The result of an attempt counts as a failure from now on; that failure's row stands in the failures file at ``offset``.

    The result's own row stays where it is. A program that does not know this event refuses the journal, so no reader takes
    the result for one by mistake.
    """

    rollout_id: str
    attempt_index: int
    offset: int
    length: int
    checksum: int
    failure_class: str
    kind: str | None
    reason: str
    elapsed_s: float | None = None
    recovered: bool = False


class OmittedEvent(_Event, frozen=True, tag="omitted"):
    """An attempt that is not recorded on purpose; it has no row."""

    rollout_id: str
    attempt_index: int
    reason: str


class Lost(_Event, frozen=True, tag="lost"):
    """The row of an outcome was found cut off at the end of its file, at ``offset``: the attempt counts as interrupted.

    Written before the remains are removed, so that a crash between the two is repaired the same way again.
    """

    rollout_id: str
    attempt_index: int
    file: Literal["rollouts", "failures"]
    offset: int
    reason: str


class SessionEnded(_Event, frozen=True, tag="session_ended"):
    """A collector let the shard go on its own accord. A killed one leaves none."""

    reason: str


Event: TypeAlias = SessionStarted | Dispatched | Success | Failed | Migrated | OmittedEvent | Lost | SessionEnded

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def encode(event: Event) -> bytes:
    """One line, newline included."""
    return _encoder.encode(event) + b"\n"


def parse(line: bytes) -> Event:
    """The event that ``line`` says. Raises ValueError for anything else, an unsupported format number included."""
    event = _decoder.decode(line)
    if event.schema_version != FORMAT:
        raise ValueError(f"journal format {event.schema_version} is not supported (this program reads format {FORMAT})")
    return event


def parse_many(lines: bytes) -> list[Event]:
    """Every event of a block of whole lines, in order; a third of the cost of one call a line. Raises ValueError."""
    found = _decoder.decode_lines(lines)
    for event in found:
        if event.schema_version != FORMAT:
            raise ValueError("unsupported journal format")
    return found

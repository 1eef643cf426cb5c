"""The ledger ``<stem>_exports.jsonl`` (format 1): what was exported where, and whether it ended.

Append-only; one line an event. ``started`` is durable before anything leaves, the end after everything arrived: an export that
started and has no end was interrupted and is looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from collector import durable
from collector.artifacts import RunArtifacts
from collector.errors import CorruptArtifactError

if TYPE_CHECKING:
    # Code that reads a ledger loads no exporter.
    from exporters.base import ExportResult

FORMAT: Final = 1


class ExportEvent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One event. ``projection_sha256`` is the digest of the rows that were exported."""

    schema_version: Literal[1]
    at: str
    event: Literal["started", "succeeded", "failed"]
    exporter: str
    destination: str
    projection_sha256: str
    reason: str = ""
    evidence: str | None = None


class Standing(StrEnum):
    """How far one export of one projection to one destination came."""

    NEVER = "never"
    INTERRUPTED = "interrupted"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


_STANDING: Final = {
    "started": Standing.INTERRUPTED,
    "succeeded": Standing.SUCCEEDED,
    "failed": Standing.FAILED,
}
_decoder = msgspec.json.Decoder(ExportEvent)


def encode(event: ExportEvent) -> bytes:
    """One line, newline included."""
    return msgspec.json.encode(event) + b"\n"


def parse_events(data: bytes, path: Path) -> list[ExportEvent]:
    """The events in ``data``; an unfinished last line is none. Raises CorruptArtifactError for any other line."""
    whole = data[: data.rfind(b"\n") + 1]
    found: list[ExportEvent] = []
    for number, line in enumerate(whole.split(b"\n")[:-1], start=1):
        try:
            found.append(_decoder.decode(line))
        except ValueError as error:
            raise CorruptArtifactError(path, number, f"not an export event ({error}).") from error
    return found


def last_event(events: Iterable[ExportEvent], destination: str, projection_sha256: str) -> ExportEvent | None:
    """The newest event of one projection at one destination."""
    wanted = (destination, projection_sha256)
    return next((e for e in reversed(list(events)) if (e.destination, e.projection_sha256) == wanted), None)


def standing(events: Iterable[ExportEvent], destination: str, projection_sha256: str) -> Standing:
    """How far the export of one projection to one destination came."""
    last = last_event(events, destination, projection_sha256)
    return Standing.NEVER if last is None else _STANDING[last.event]


def arrived_at(events: Iterable[ExportEvent], projection_sha256: str) -> list[str]:
    """The destinations where this projection is, each once, in the order of arrival: what others left there is not of it."""
    known = list(events)
    return [
        place
        for place in dict.fromkeys(event.destination for event in known if event.projection_sha256 == projection_sha256)
        if standing(known, place, projection_sha256) is Standing.SUCCEEDED
    ]


def pending(events: Iterable[ExportEvent], destinations: Mapping[str, str], projection_sha256: str) -> dict[str, str]:
    """Those of ``destinations`` (name to place) where this projection has not arrived; interrupted ones count as not."""
    known = list(events)
    return {
        name: place
        for name, place in destinations.items()
        if standing(known, place, projection_sha256) is not Standing.SUCCEEDED
    }


@dataclass(frozen=True, slots=True)
class Ledger:
    """The ledger of one projection: events are read from its file and added to it."""

    artifacts: RunArtifacts
    exporter: str
    destination: str
    projection_sha256: str
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def last(self) -> ExportEvent | None:
        """The newest event of this export. Raises CorruptArtifactError."""
        return last_event(read_events(self.artifacts.exports), self.destination, self.projection_sha256)

    def superseded(self) -> frozenset[str]:
        """The evidence of what other projections of the run left at this destination. Raises CorruptArtifactError."""
        return frozenset(
            event.evidence
            for event in read_events(self.artifacts.exports)
            if event.event == "succeeded"
            and (event.exporter, event.destination) == (self.exporter, self.destination)
            and event.projection_sha256 != self.projection_sha256
            and event.evidence is not None
        )

    def start(self) -> None:
        """Say that the export begins; durable when this returns."""
        self._append("started")

    def end(self, result: ExportResult) -> None:
        """Say how it ended; durable when this returns."""
        self._append("succeeded" if result.is_success else "failed", reason=result.message, evidence=result.evidence)

    def _append(
        self, event: Literal["started", "succeeded", "failed"], *, reason: str = "", evidence: str | None = None
    ) -> None:
        line = encode(
            ExportEvent(
                schema_version=FORMAT,
                at=self.now().isoformat(timespec="milliseconds"),
                event=event,
                exporter=self.exporter,
                destination=self.destination,
                projection_sha256=self.projection_sha256,
                reason=reason,
                evidence=evidence,
            )
        )
        append_line(self.artifacts, line)


def read_events(path: Path) -> list[ExportEvent]:
    """The events of the ledger at ``path``; none when there is no such file. Raises CorruptArtifactError."""
    if path.exists() and not path.is_file() and not path.is_dir():
        # To open a pipe is to wait for its other end, and a device forgets what was exported.
        raise CorruptArtifactError(path, 0, "no regular file, and no ledger.", "Move it away.")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    return parse_events(data, path)


def append_line(artifacts: RunArtifacts, line: bytes) -> None:
    """Add ``line`` to the ledger, durably; what a crash left of an earlier line is cut off first."""
    # Loads the backends of locks, which reading a ledger does not need.
    from merge.publication.lock import waiting_lock  # noqa: PLC0415

    with waiting_lock(artifacts.companion("_exports.lock")):
        durable.append_lines(artifacts.exports, line)

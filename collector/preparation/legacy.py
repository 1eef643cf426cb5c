"""Files that NeMo Gym wrote, without manifest and journal, taken over as a run: explicit, and marked unverified for good.

Everything is read and checked before a byte changes. Then unfinished last lines are repaired, the journal of session 0 is
published, and the manifest last. Rows stay as they are. Each file that changes is replaced as a whole under the fence: an
importer that was stopped and outrun changes nothing when it wakes.
"""

from __future__ import annotations

import os
import socket
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from collector import durable, jsonl
from collector.artifacts import RunArtifacts
from collector.errors import CorruptArtifactError
from collector.formats import events, rows
from collector.formats.events import Dispatched, Event, Failed, Migrated, SessionStarted, Success
from collector.formats.inventory import Inventory
from collector.formats.manifest import Manifest
from collector.outcomes import FailureClass
from collector.preparation.legacy_judge import PlacedLine, half_migrated


class LegacyFailure(msgspec.Struct, frozen=True):
    """What a sidecar row of NeMo Gym says of its failure."""

    failure_class: str = msgspec.field(name=rows.FAILURE_CLASS)
    terminal: bool | None = msgspec.field(name=rows.FAILURE_TERMINAL, default=None)
    message: str | None = msgspec.field(name=rows.FAILURE_MESSAGE, default=None)
    kind: str | None = msgspec.field(name="failure_kind", default=None)
    elapsed_s: float | None = msgspec.field(name="elapsed_seconds", default=None)
    record: dict[str, Any] | None = msgspec.field(name=rows.FAILURE_RECORD, default=None)


_failure_decoder = msgspec.json.Decoder(LegacyFailure)


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    offset: int
    data: bytes
    is_whole: bool


def import_legacy(artifacts: RunArtifacts, wanted: Manifest, fence: Callable[[], None] | None = None) -> Manifest:
    """Make the files at ``artifacts`` a run with a journal. Raises CorruptArtifactError for what no crash explains.

    The caller holds the shard's lock, whose loss ``fence`` tells by a FencedError, or nobody else knows the path.
    """
    for path in (artifacts.rollouts, artifacts.inventory):
        if not path.is_file():
            raise CorruptArtifactError(path, 0, "the file is missing.", "There is nothing to resume; use a new path.")
    inventory = Inventory(artifacts.inventory)
    known = inventory.index_by_id()
    digest, expected = inventory.digest, len(inventory)
    inventory.close()
    failures = list(_failures(artifacts.failures, known)) if artifacts.failures.exists() else []
    successes = list(_successes(artifacts.rollouts, known))
    migrated = _half_migrated(artifacts)
    journal = _journal(wanted.run_id, failures, successes, migrated)
    for path in (artifacts.rollouts, artifacts.failures):
        _repair(path, fence)
    with durable.staged(artifacts.journal, fence=fence) as file:
        # One that lies there is of an import that crashed behind this line.
        file.write_lines(map(events.encode, journal))
    manifest = wanted.model_copy(update={"inventory_digest": digest, "expected": expected, "legacy_import": True})
    durable.publish(artifacts.manifest, manifest.encode(), fence=fence)
    return manifest


def _journal(run_id: str, failures: list[Failed], successes: list[Success], migrated: dict[int, int]) -> list[Event]:
    """Session 0 of an imported run: attempts renumbered in file order, the success last, as a resume would have made them.

    ``migrated`` has, by the offset of a result, that of the failure it became: one attempt, with the result first.
    """
    became = {failure.offset: failure for failure in failures if failure.offset in migrated.values()}
    host, at = socket.gethostname(), datetime.now(UTC).isoformat(timespec="milliseconds")
    found: list[Event] = [
        SessionStarted(run_id=run_id, session=0, seq=0, at=at, reason="legacy_import", host=host, pid=os.getpid())
    ]
    attempts: dict[str, int] = {}
    for outcome in (*(failure for failure in failures if failure.offset not in became), *successes):
        number = attempts.get(outcome.rollout_id, -1) + 1
        attempts[outcome.rollout_id] = number
        found.append(
            Dispatched(run_id=run_id, session=0, seq=len(found), at=at, rollout_id=outcome.rollout_id, attempt_index=number)
        )
        found.append(msgspec.structs.replace(outcome, run_id=run_id, at=at, attempt_index=number, seq=len(found)))
        if isinstance(outcome, Success) and outcome.offset in migrated:
            found.append(_migrated(became[migrated[outcome.offset]], run_id, at, number, len(found)))
    return found


def _migrated(failure: Failed, run_id: str, at: str, attempt: int, seq: int) -> Migrated:
    return Migrated(
        run_id=run_id, session=0, seq=seq, at=at, rollout_id=failure.rollout_id, attempt_index=attempt, offset=failure.offset,
        length=failure.length, checksum=failure.checksum, failure_class=failure.failure_class, kind=failure.kind,
        reason=failure.reason, elapsed_s=failure.elapsed_s, recovered=True,
    )  # fmt: skip


def _half_migrated(artifacts: RunArtifacts) -> dict[int, int]:
    if not artifacts.failures.exists():
        return {}
    failures, results = (
        (PlacedLine(line.number, line.offset, line.data) for line in _lines(path))
        for path in (artifacts.failures, artifacts.rollouts)
    )
    return half_migrated(failures, results, str(artifacts.rollouts))


def _successes(path: Path, known: dict[str, int]) -> Iterator[Success]:
    seen: set[str] = set()
    for line in _lines(path):
        try:
            stamp, saved = rows.parse_stamp(line.data), rows.parse_verdict(line.data)
        except ValueError as error:
            if not _is_torn(line):
                raise CorruptArtifactError(path, line.number, f"not a result row ({error}).", rows.cure_for(error)) from error
            return
        if stamp.rollout_id not in known:
            raise CorruptArtifactError(path, line.number, f"rollout {stamp.rollout_id!r} is not in the inventory.")
        if stamp.rollout_id in seen:
            raise CorruptArtifactError(path, line.number, f"rollout {stamp.rollout_id!r} has two results.")
        seen.add(stamp.rollout_id)
        yield Success(
            run_id="", session=0, seq=-1, at="", rollout_id=stamp.rollout_id, attempt_index=-1, offset=line.offset,
            length=len(line.data), checksum=zlib.crc32(line.data), reward=saved.reward, masked=saved.mask_sample,
            truncated=saved.is_truncated, recovered=True,
        )  # fmt: skip


def _failures(path: Path, known: dict[str, int]) -> Iterator[Failed]:
    for line in _lines(path):
        try:
            stamp, saved = rows.parse_stamp(line.data), rows.parse_part(_failure_decoder, line.data)
            if saved.record is not None:
                rows.parse_failure(line.data)
        except ValueError as error:
            if not _is_torn(line):
                raise CorruptArtifactError(path, line.number, f"not a failure row ({error}).") from error
            return
        if stamp.rollout_id not in known:
            raise CorruptArtifactError(path, line.number, f"rollout {stamp.rollout_id!r} is not in the inventory.")
        yield Failed(
            run_id="", session=0, seq=-1, at="", rollout_id=stamp.rollout_id, attempt_index=-1, offset=line.offset,
            length=len(line.data), checksum=zlib.crc32(line.data), failure_class=saved.failure_class, kind=saved.kind,
            terminal=saved.terminal is True or saved.failure_class == FailureClass.PERMANENT,
            reason=saved.message or "", elapsed_s=saved.elapsed_s, recovered=True,
        )  # fmt: skip


def _lines(path: Path) -> Iterator[_Line]:
    """Each line with its place; the last one, when it lacks its newline, is given it."""
    offset = 0
    with path.open("rb", buffering=1 << 20) as file:
        for number, data in enumerate(file, start=1):
            is_whole = data.endswith(b"\n")
            yield _Line(number, offset, data if is_whole else data + b"\n", is_whole)
            offset += len(data)


def _is_torn(line: _Line) -> bool:
    """Whether ``line`` was cut short; whole JSON that only lacks its newline was not, and must be a row."""
    if line.is_whole:
        return False
    try:
        jsonl.loads(line.data)
    except ValueError:
        return True
    return False


def _repair(path: Path, fence: Callable[[], None] | None) -> None:
    """End or cut an unfinished last line; an absent file becomes an empty one."""
    if not path.exists():
        durable.create_missing(path)
        return
    last = None
    for line in _lines(path):
        last = line
    if last is None or last.is_whole:
        return
    durable.renew(path, fence, size_bytes=last.offset, ending=b"" if _is_torn(last) else last.data)

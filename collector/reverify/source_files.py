"""What files without a journal have saved: a merged file, or what NeMo Gym 0.7.0 wrote. Writes nothing.

A result decides; without one the last failure row does, since NeMo Gym appends in the order of attempts.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from collector import jsonl
from collector.artifacts import RunArtifacts
from collector.errors import CorruptArtifactError
from collector.formats import rows
from collector.formats.rollout_key import key_of
from collector.outcomes import FailureClass, RolloutState
from collector.reverify.answers import Candidate, Kind, Span, refuse_stage
from collector.reverify.source import FailedRow
from collector.shard.invalid_judge import is_flagged
from collector.shard.recorded import ended
from collector.state.codes import Past

_CURE: Final = "Restore the file; lines that a crash cut off stand last only."


class _Result(msgspec.Struct, frozen=True):
    reward: float | int | None = None
    response: Any = None


class _Failed(FailedRow, frozen=True):
    terminal: bool | None = msgspec.field(name=rows.FAILURE_TERMINAL, default=None)


_result_decoder = msgspec.json.Decoder(_Result)
_failed_decoder = msgspec.json.Decoder(_Failed)


@dataclass(slots=True)
class _Known:
    """What the files say of one rollout."""

    rollout_id: str
    line: Span | None = None
    result: tuple[Span, int, Kind] | None = None
    failures: list[tuple[Span, int, _Failed]] = field(default_factory=list[tuple[Span, int, _Failed]])


def candidates_at(
    artifacts: RunArtifacts, inventory: Path | None = None, *, retries_invalid: bool = False
) -> Iterator[Candidate]:
    """Every rollout of the files at ``artifacts``; ``inventory`` instead of the one beside them.

    Without an inventory the rollouts are those that have a row. With ``retries_invalid`` a result flagged
    ``invalid_judge_response`` is an answer whose judge failed. Raises CorruptArtifactError and DatasetError.
    """
    known: dict[int, _Known] = {}
    inventory = inventory or (artifacts.inventory if artifacts.inventory.exists() else None)
    if inventory is not None:
        for number, span, line in _lines(inventory):
            stamp = _stamp(inventory, number, line)
            key = key_of(stamp.task, stamp.repeat)
            if key in known:
                raise CorruptArtifactError(inventory, number, f"rollout {stamp.rollout_id} occurs twice.")
            known[key] = _Known(stamp.rollout_id, span)
    _take_results(artifacts.rollouts, known, is_closed=inventory is not None, retries_invalid=retries_invalid)
    if artifacts.failures.exists():
        _take_failures(artifacts.failures, known, is_closed=inventory is not None)
    return (_candidate(key, one) for key, one in known.items())


def _take_results(path: Path, known: dict[int, _Known], *, is_closed: bool, retries_invalid: bool) -> None:
    for number, span, line in _lines(path):
        one = _entry(path, number, line, known, is_closed=is_closed)
        try:
            saved = rows.parse_part(_result_decoder, line)
        except ValueError as error:
            raise CorruptArtifactError(path, number, f"not a result row ({error}).", rows.cure_for(error)) from error
        if one.result is not None:
            raise CorruptArtifactError(path, number, f"rollout {one.rollout_id} has two results.")
        if not isinstance(saved.response, dict):
            kind = Kind.ABSENT
        else:
            kind = Kind.UNJUDGED if retries_invalid and is_flagged(line) else Kind.RESULT
        one.result = (span, zlib.crc32(line), kind)


def _take_failures(path: Path, known: dict[int, _Known], *, is_closed: bool) -> None:
    for number, span, line in _lines(path):
        one = _entry(path, number, line, known, is_closed=is_closed)
        try:
            saved = rows.parse_part(_failed_decoder, line)
        except ValueError as error:
            raise CorruptArtifactError(path, number, f"not a failure row ({error}).") from error
        one.failures.append((span, zlib.crc32(line), saved))


def _entry(path: Path, number: int, line: bytes, known: dict[int, _Known], *, is_closed: bool) -> _Known:
    stamp = _stamp(path, number, line)
    key = key_of(stamp.task, stamp.repeat)
    if key not in known:
        if is_closed:
            raise CorruptArtifactError(path, number, f"rollout {stamp.rollout_id} is not in the inventory.")
        known[key] = _Known(stamp.rollout_id)
    return known[key]


def _stamp(path: Path, number: int, line: bytes) -> rows.RowStamp:
    try:
        stamp = rows.parse_stamp(line)
    except ValueError as error:
        raise CorruptArtifactError(path, number, f"not a row of a rollout ({error}).", _CURE) from error
    refuse_stage(line, f"{path}:{number}")
    return stamp


def _candidate(key: int, one: _Known) -> Candidate:
    if one.result is not None:
        span, checksum, kind = one.result
        trouble = "its row has no response" if kind is Kind.ABSENT else ""
        return Candidate(key, one.rollout_id, kind, one.line, span, checksum, trouble=trouble)
    if not one.failures:
        return Candidate(key, one.rollout_id, Kind.ABSENT, one.line, trouble="it has no row")
    span, checksum, saved = one.failures[-1]
    past = Past(
        state=RolloutState.FAILED,
        dispatched=len(one.failures),
        recorded=len(one.failures),
        terminal=saved.terminal is True or saved.failure_class == FailureClass.PERMANENT,
        failure_class=saved.failure_class,
    )
    if not saved.has_answer:
        trouble = f"its latest recorded outcome is {saved.failure_class}, which left no answer to judge"
        return Candidate(key, one.rollout_id, Kind.ABSENT, one.line, span, checksum, past, trouble)
    return Candidate(key, one.rollout_id, Kind.UNJUDGED, one.line, span, checksum, past)


def _lines(path: Path) -> Iterator[tuple[int, Span, bytes]]:
    """Each line with its number and place; an unfinished last one that is no JSON is what a crash cut off."""
    offset = 0
    with path.open("rb", buffering=1 << 20) as file:
        for number, data in enumerate(file, start=1):
            if data.endswith(b"\n") or _is_json(data):
                yield number, Span(path, offset, len(data)), ended(data)
            offset += len(data)


def _is_json(data: bytes) -> bool:
    try:
        jsonl.loads(data)
    except ValueError:
        return False
    return True

"""A migration of invalid judgements that NeMo Gym began and did not end: the failure row is written, the result still there.

NeMo Gym copies the result with a class and a marker to the failures file, then takes it out of the file of results. Both are
one attempt, and the failure counts. The two are told to belong together only when the copy is exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from collector import jsonl
from collector.errors import CorruptArtifactError
from collector.formats import rows
from collector.outcomes import FailureClass
from collector.shard.invalid_judge import FLAG

_MARKER = rows.MIGRATED.encode()


class PlacedLine(NamedTuple):
    """A line of a file: its number from 1, the byte where it begins, and its bytes."""

    number: int
    offset: int
    data: bytes


class _Key(NamedTuple):
    """What NeMo Gym knows a migrated row by."""

    stage: str
    task: Any
    repeat: Any
    attempt: Any


def half_migrated(failures: Iterable[PlacedLine], results: Iterable[PlacedLine], where: str) -> dict[int, int]:
    """Offset of a result row to offset of the failure row that it became. Pure.

    Raises CorruptArtifactError, naming a line of ``where``, for two rows of one attempt that differ in anything else than
    what the migration changes. Lines that are no JSON are passed over: others judge them.
    """
    marked: dict[_Key, tuple[int, dict[str, Any]]] = {}
    for line in failures:
        row = _row(line.data) if _MARKER in line.data else {}
        if row.get(rows.MIGRATED) is True:
            marked[_key(row)] = (line.offset, row)
    found: dict[int, int] = {}
    for line in results if marked else ():
        row = _row(line.data)
        if (copy := marked.get(_key(row))) is None:
            continue
        if not is_copy(row, copy[1]):
            what = "its attempt has a failure row as well, made of another result than this one."
            raise CorruptArtifactError(where, line.number, what)
        found[line.offset] = copy[0]
    return found


def is_copy(result: dict[str, Any], failure: dict[str, Any]) -> bool:
    """Whether ``failure`` is what NeMo Gym's migration makes of ``result``, with or without a deliverable."""
    kept = {key: value for key, value in result.items() if key not in {rows.FAILURE_TERMINAL, rows.REUSE}}
    kept[rows.FAILURE_CLASS] = result.get(rows.FAILURE_CLASS) or FailureClass.JUDGE_INVALID.value
    kept[rows.MIGRATED] = True
    # Deliverables may have come or gone since.
    return result.get(FLAG) is True and failure in ({**kept, rows.REUSE: True}, kept)


def _key(row: dict[str, Any]) -> _Key:
    return _Key(
        str(row.get("stage_index") or 0),
        row.get(rows.TASK_INDEX),
        row.get(rows.ROLLOUT_INDEX),
        row.get(rows.ATTEMPT_INDEX) or 0,
    )


def _row(data: bytes) -> dict[str, Any]:
    try:
        row = jsonl.loads(data)
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}

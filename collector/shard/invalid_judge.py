"""Results whose judge gave no usable answer, made failures: which, and the failure row and event of each. Writes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from collector import jsonl
from collector.artifacts import RunArtifacts
from collector.formats import row_lines, rows
from collector.formats.events import Migrated
from collector.formats.inventory import Inventory
from collector.formats.manifest import Manifest
from collector.outcomes import Delivery, Failure, FailureClass, FailureKind, Stage
from collector.shard.recorded import as_recorded
from collector.shard.recovered import told_by_row
from collector.state.codes import RESULT_CODES, Place
from collector.state.history import History

FLAG: Final = "invalid_judge_response"
_REASON: Final = "the judge's answer could not be used"


@dataclass(frozen=True, slots=True)
class Migration:
    """One result that becomes a failure: its rollout's place in the inventory, what to record, and the failure's row."""

    index: int
    draft: Migrated
    line: bytes


def invalid_results(artifacts: RunArtifacts, history: History, inventory: Inventory, manifest: Manifest) -> Iterator[Migration]:
    """Each result flagged ``invalid_judge_response: true``, with what it becomes. Reads every result row of the shard.

    Those that were committed are no results any more: a second call finds nothing. Raises CorruptArtifactError for a row
    that is not the one that was recorded.
    """
    # Sorted by place, so that a disk reads the file from front to back.
    found = sorted((i for i, code in enumerate(history.codes) if code in RESULT_CODES), key=history.offsets.__getitem__)
    with artifacts.rollouts.open("rb") as file:
        for index in found:
            line = read_result(file.fileno(), artifacts.rollouts, history, index)
            if is_flagged(line):
                row = migrated_line(
                    line,
                    rollout_id=inventory.rollout_id(index),
                    run_id=manifest.run_id,
                    session=history.owner[index],
                    attempt=history.latest[index],
                    may_reuse=has_deliverable(line),
                )
                yield Migration(index, migrated_event(row, offset=-1, run_id=manifest.run_id), row)


def read_result(descriptor: int, path: Path, history: History, index: int) -> bytes:
    """The recorded result row of rollout ``index``. Raises CorruptArtifactError when the file holds another one."""
    place = Place(history.offsets[index], history.lengths[index], history.checksums[index])
    return as_recorded(os.pread(descriptor, place.length, place.offset), place, path)


def is_flagged(line: bytes) -> bool:
    """Whether the result row in ``line`` says that its judge's answer was invalid."""
    return FLAG.encode() in line and jsonl.loads(line).get(FLAG) is True


def has_deliverable(line: bytes) -> bool:
    """Whether the directory that the row names as ``deliverables_dir`` holds a file now."""
    directory = jsonl.loads(line).get("deliverables_dir")
    if not isinstance(directory, str) or not directory:
        return False
    try:
        return any(entry.is_file() for entry in Path(directory).iterdir())
    except (OSError, ValueError):
        return False


def migrated_line(line: bytes, *, rollout_id: str, run_id: str, session: int, attempt: int, may_reuse: bool) -> bytes:
    """The failure row that the result row in ``line`` becomes: never terminal, without a reward, with its answer. Pure."""
    row: dict[str, Any] = jsonl.loads(line)
    failure = Failure(
        failure_class=_text(row, rows.FAILURE_CLASS, FailureClass.JUDGE_INVALID),
        kind=_text(row, "failure_kind", FailureKind.JUDGE_UNPARSEABLE),
        reason=_text(row, "failure_reason", _REASON),
        delivery=Delivery.DELIVERED,
        stage=Stage.VERIFICATION,
        response=row.get("response"),
        reuse_deliverable=may_reuse,
    )
    # The journal numbers attempts; what an imported row says of itself is another program's count.
    kept = {key: value for key, value in row.items() if key not in {rows.REUSE, rows.ATTEMPT_INDEX}}
    kept[rows.MIGRATED] = True
    return row_lines.failure_line(
        jsonl.dumps(kept), kept, failure, rollout_id=rollout_id, run_id=run_id, session=session, attempt=attempt
    )


def migrated_event(line: bytes, *, offset: int, run_id: str) -> Migrated:
    """The event of the migrated row in ``line``. Raises ValueError when it is no failure row."""
    stamp, record = rows.parse_failure(line)
    failure = record.failure
    return Migrated(
        **told_by_row(stamp, offset, line, run_id),
        failure_class=stamp.failure_class or FailureClass.JUDGE_INVALID,
        kind=failure.failure_kind,
        reason=failure.failure_reason,
        recovered=offset >= 0,
    )


def _text(row: dict[str, Any], key: str, default: str) -> str:
    value = row.get(key)
    return value if isinstance(value, str) and value else default

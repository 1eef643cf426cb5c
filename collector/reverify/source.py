"""What a run with a journal has saved: of each rollout the answer that counts, by what its history says. Writes nothing.

An answer whose judge failed may be judged again while it is the latest recorded outcome: interruptions since then change
nothing, any newer outcome ends it. Whether the rollout may be tried again is its latest state's to say.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import msgspec

from collector.formats import rows
from collector.outcomes import FailureClass
from collector.reverify.answers import Candidate, Kind, Span, refuse_stage, unreadable
from collector.shard.invalid_judge import is_flagged
from collector.shard.recorded import as_recorded
from collector.shard.store import RolloutStore
from collector.state.codes import RESULT_CODES, Code, Place

#: Failures of a judge: the answer is there and has no verdict.
JUDGE_CLASSES: Final = frozenset({FailureClass.JUDGE_FAILED.value, FailureClass.JUDGE_INVALID.value})


class FailedRow(msgspec.Struct, frozen=True):
    """What of a failure row says whether its answer can be judged again."""

    failure_class: str = msgspec.field(name=rows.FAILURE_CLASS)
    response: Any = None

    @property
    def has_answer(self) -> bool:
        return self.failure_class in JUDGE_CLASSES and isinstance(self.response, dict)


failed_decoder: Final = msgspec.json.Decoder(FailedRow)


def candidates_in(store: RolloutStore, *, retries_invalid: bool = False) -> Iterator[Candidate]:
    """Every rollout of the shard in inventory order, those that left it aside. Raises CorruptArtifactError.

    With ``retries_invalid`` a result flagged ``invalid_judge_response`` is an answer whose judge failed.
    """
    inventory, history = store.inventory, store.history
    at = 0
    files = store.artifacts
    with (
        inventory.path.open("rb", buffering=1 << 20) as lines,
        _Rows(files.rollouts) as results,
        _Rows(files.failures) as failures,
    ):
        for index, line in enumerate(lines):
            refuse_stage(line, f"{inventory.path}:{index + 1}")
            span = Span(inventory.path, at, len(line))
            at += len(line)
            code = Code(history.codes[index])
            if code is Code.MOVED:
                continue
            found = _found(store, index, code, failures)
            if retries_invalid and found.place is not None and code in RESULT_CODES and is_flagged(results.read(found.place)):
                found = found._replace(kind=Kind.UNJUDGED)
            yield Candidate(
                key=inventory.key(index),
                rollout_id=inventory.rollout_id(index),
                kind=found.kind,
                line=span,
                row=None if found.place is None else Span(found.path, found.place.offset, found.place.length),
                checksum=0 if found.place is None else found.place.checksum,
                past=history.past(index),
                trouble=found.trouble,
            )


class _Found(NamedTuple):
    kind: Kind
    path: Path
    place: Place | None = None
    trouble: str = ""


def _found(store: RolloutStore, index: int, code: Code, failures: _Rows) -> _Found:
    history, files = store.history, store.artifacts
    if code in RESULT_CODES:
        place = Place(history.offsets[index], history.lengths[index], history.checksums[index])
        return _Found(Kind.RESULT, files.rollouts, place)
    place = None if code is Code.OMITTED else history.failure_place(index)
    if place is None:
        return _Found(Kind.ABSENT, files.failures, trouble=_NOTHING[code])
    row = rows.parse_part(failed_decoder, failures.read(place))
    if row.has_answer:
        return _Found(Kind.UNJUDGED, files.failures, place)
    trouble = f"its latest recorded outcome is {row.failure_class}, which left no answer to judge"
    return _Found(Kind.ABSENT, files.failures, trouble=trouble)


#: Why there is no row at all.
_NOTHING: Final = {
    Code.NEVER: "it was never tried",
    Code.UNKNOWN: "its attempts were interrupted",
    Code.OMITTED: "it was omitted on purpose",
    Code.FAILED: "the row of its failure is lost",
    Code.FAILED_TERMINALLY: "the row of its failure is lost",
}


class _Rows:
    """A file of rows, each held against what was recorded of it when it is read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._descriptor)

    def read(self, place: Place) -> bytes:
        """The row at ``place``. Raises CorruptArtifactError when another one is there."""
        try:
            line = os.pread(self._descriptor, place.length, place.offset)
        except OSError as error:
            raise unreadable(self._path, error) from error
        return as_recorded(line, place, self._path)

"""One input of a merge as it stands now: manifest, coverage and selected rows, without its payload."""

from __future__ import annotations

import hashlib
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from collector.artifacts import RunArtifacts
from collector.durable import FileId
from collector.errors import CorruptArtifactError, RefusedError
from collector.formats.manifest import Manifest
from collector.outcomes import RolloutState
from collector.settings import RetrySettings
from collector.shard.store import RolloutStore
from collector.state.codes import Code
from collector.state.coverage import Coverage
from collector.state.history import History
from collector.state.scores import Scores
from merge.inputs.select import SelectedRows, select_rows

#: Reads of a shard that changes meanwhile; one that never rests is refused when its payload is checked.
_READS: Final = 3
_WITHOUT_OUTCOME: Final = [int(Code.NEVER), int(Code.UNKNOWN)]


class FileMark(NamedTuple):
    """What tells that a file is still the one that was read, with the same content."""

    file_id: FileId
    size_bytes: int
    mtime_ns: int

    @classmethod
    def of(cls, path: Path) -> FileMark:
        info = path.stat()
        return cls(FileId.of(info), info.st_size, info.st_mtime_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardView:
    """A shard at one moment. Memory: about 50 bytes a rollout."""

    artifacts: RunArtifacts
    manifest: Manifest
    coverage: Coverage
    #: Keys of all rollouts that are the shard's, rising.
    keys: array[int]
    rows: SelectedRows
    #: The rewards of the measured rollouts.
    scores: Scores
    #: SHA-256 over the state of every rollout: equal digests mean the same selection and the same counts.
    state_sha256: str
    marks: dict[Path, FileMark]
    #: The routing class of every rollout whose latest attempt failed, by key.
    failures: dict[int, str]
    #: Keys of rollouts whose latest attempt has no outcome, or that had none, rising.
    missing: array[int]
    #: Seconds of all attempts where each of them has an unmasked row that was selected; None: the journal is to be asked.
    elapsed: array[float] | None = None

    def is_unchanged(self) -> bool:
        """Whether all files of the shard are the ones that were read."""
        return all(path.exists() and FileMark.of(path) == mark for path, mark in self.marks.items())

    def check_payload(self) -> None:
        """Raise RefusedError unless rows, inventory and manifest are untouched since they were read.

        The journal may have grown: the session that recorded the last row says so when it ends.
        """
        for path in (self.artifacts.rollouts, self.artifacts.inventory, self.artifacts.manifest):
            if path in self.marks and not (path.exists() and FileMark.of(path) == self.marks[path]):
                raise RefusedError("the file changed while it was merged.", "Merge again when its collector has ended.", path)


def read_shard(artifacts: RunArtifacts, retry: RetrySettings) -> ShardView:
    """The shard at ``artifacts``, counted under ``retry``. Raises what RolloutStore.read raises.

    A shard whose collector is at work is read again, a few times, until rows and marks are of one moment.
    """
    for _ in range(_READS - 1):
        view = _read_once(artifacts, retry)
        if view.is_unchanged():
            return view
    return _read_once(artifacts, retry)


def _read_once(artifacts: RunArtifacts, retry: RetrySettings) -> ShardView:
    files = (
        artifacts.manifest,
        artifacts.inventory,
        artifacts.journal,
        artifacts.rollouts,
        artifacts.failures,
        artifacts.moved,
    )
    marks = {path: FileMark.of(path) for path in files if path.exists()}
    with RolloutStore.read(artifacts) as store:
        history, inventory = store.history, store.inventory
        keys = inventory.keys
        codes = np.frombuffer(history.codes, dtype=np.uint8)
        # A rollout that was planned anew is the other shard's.
        ordered = _keys_of(keys, codes != Code.MOVED)
        _check_distinct(ordered, artifacts)
        coverage, selected = store.coverage(retry), select_rows(keys, history)
        return ShardView(
            artifacts=artifacts,
            manifest=store.manifest,
            coverage=coverage,
            # Nearly always the same: rows of some of the keys, as many as there are.
            keys=selected.keys if len(selected) == len(ordered) else ordered,
            rows=selected,
            scores=history.scores(),
            state_sha256=_digest(history),
            marks=marks,
            failures={keys[index]: name for index, name in history.classes.items()},
            missing=_keys_of(keys, np.isin(codes, _WITHOUT_OUTCOME)),
            elapsed=_elapsed_of(history) if _is_plain(history, coverage, selected) else None,
        )


def _is_plain(history: History, coverage: Coverage, selected: SelectedRows) -> bool:
    is_each_selected = coverage.attempts == len(selected) and not history.late_events
    return is_each_selected and not coverage.states[RolloutState.MASKED]


def _elapsed_of(history: History) -> array[float]:
    seconds = np.asarray(history.elapsed)
    return array("d", seconds[~np.isnan(seconds)].tobytes())


def _keys_of(keys: array[int], chosen: npt.NDArray[np.bool_]) -> array[int]:
    """Those of ``keys`` that are ``chosen``, rising."""
    return array("q", np.sort(np.asarray(keys)[chosen]).tobytes())


def _check_distinct(ordered: array[int], artifacts: RunArtifacts) -> None:
    if np.any(np.diff(np.asarray(ordered)) == 0):
        raise CorruptArtifactError(artifacts.inventory, 0, "one (task, repeat) occurs twice.")


def _digest(history: History) -> str:
    hasher = hashlib.sha256(bytes(history.codes))
    for column in (history.latest, history.offsets, history.lengths, history.checksums):
        hasher.update(column.tobytes())
    hasher.update(_encoded_numbers(history.recorded))
    return hasher.hexdigest()


def _encoded_numbers(numbers: bytearray | list[int]) -> bytes:
    """Each of ``numbers`` as its bytes, the least first, and a zero; 0 is that zero alone."""
    if isinstance(numbers, list):
        return b"".join(number.to_bytes((number.bit_length() + 7) // 8 + 1, "little") for number in numbers)
    pairs = np.zeros((len(numbers), 2), dtype=np.uint8)
    pairs[:, 0] = numbers
    return pairs[np.stack([pairs[:, 0] != 0, np.ones(len(numbers), dtype=np.bool_)], axis=1)].tobytes()

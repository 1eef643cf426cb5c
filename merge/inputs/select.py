"""Which rows a projection holds, and in which order: pure decisions over keys and recorded places.

Rows come in the order of their rollouts' keys: by task, then by repeat.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collector.formats.rollout_key import counted_id
from collector.state.codes import Code
from collector.state.history import History

#: The states whose latest attempt has a row in the main file.
_WITH_ROW = [int(code) for code in (Code.MEASURED, Code.MASKED, Code.UNSCORED)]


class OverlapError(ValueError):
    """One rollout belongs to two shards."""

    def __init__(self, key: int, first: int, second: int) -> None:
        super().__init__(key, first, second)
        self.key = key
        self.shards = (first, second)

    @property
    def rollout(self) -> str:
        """The rollout in words."""
        return f"rollout {counted_id(self.key)}"

    def __str__(self) -> str:
        return f"{self.rollout} is in input {self.shards[0]} and in input {self.shards[1]}"


@dataclass(frozen=True, slots=True)
class SelectedRows:
    """The rows of one shard that its projection holds, by rising key; parallel arrays, 32 bytes a row."""

    keys: array[int]
    offsets: array[int]
    lengths: array[int]
    checksums: array[int]

    def __len__(self) -> int:
        return len(self.keys)


def select_rows(keys: Sequence[int], history: History) -> SelectedRows:
    """The latest attempt's row of every rollout that has one: measured, masked and unscored ones."""
    has_row = np.isin(np.frombuffer(history.codes, dtype=np.uint8), _WITH_ROW)
    chosen = np.flatnonzero(has_row)
    chosen = chosen[np.argsort(np.asarray(keys)[chosen], kind="stable")]
    columns = (keys, history.offsets, history.lengths, history.checksums)
    return SelectedRows(*(array("q", np.asarray(column)[chosen].astype(np.int64).tobytes()) for column in columns))


def merge_keys(shards: Sequence[array[int]]) -> array[int]:
    """The keys of all ``shards``, each of which rises, in rising order. Raises OverlapError for a key that two of them hold."""
    every = np.concatenate([np.asarray(keys, dtype=np.int64) for keys in shards])
    # Merges what rises already.
    every.sort(kind="stable")
    twice = np.flatnonzero(every[1:] == every[:-1])
    if len(twice):
        key = int(every[twice[0]])
        first, second, *_ = (index for index, keys in enumerate(shards) if _holds(keys, key))
        raise OverlapError(key, first, second)
    return array("q", every.tobytes())


def _holds(keys: Sequence[int], key: int) -> bool:
    place = bisect_left(keys, key)
    return place < len(keys) and keys[place] == key

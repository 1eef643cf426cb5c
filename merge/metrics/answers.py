"""Which field of a row holds the answer that was read out of the model's reply, for majority votes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from collector import jsonl
from merge.inputs.shards import ShardView
from merge.rows.numbers import EXTRACTED

#: Some verifiers call it so, and some datasets call their expected answer so.
_AMBIGUOUS: Final = "answer"


def answer_field_of(shards: Sequence[ShardView]) -> str:
    """``extracted_answer``, or ``answer`` where rows have it and their inputs do not: then a verifier put it there."""
    for shard in shards:
        if not len(shard.rows):
            continue
        row = _row_at(shard.artifacts.rollouts, shard.rows.offsets[0], shard.rows.lengths[0])
        if EXTRACTED in row or _AMBIGUOUS not in row or not shard.artifacts.inventory.is_file():
            return EXTRACTED
        with shard.artifacts.inventory.open("rb") as file:
            source = _object(file.readline())
        return EXTRACTED if _AMBIGUOUS in source else _AMBIGUOUS
    return EXTRACTED


def _row_at(path: Path, offset: int, length: int) -> dict[str, Any]:
    with path.open("rb", buffering=0) as file:
        return _object(os.pread(file.fileno(), length, offset))


def _object(line: bytes) -> dict[str, Any]:
    try:
        row = jsonl.loads(line)
    except ValueError:
        # Whoever reads all rows says what is wrong with this one.
        return {}
    return row if isinstance(row, dict) else {}

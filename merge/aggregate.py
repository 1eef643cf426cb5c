"""The file ``<stem>_aggregate_metrics.json``: an array with one entry, in the shape that readers of NeMo Gym's file expect.

Tasks are written as they are computed, one a line, so that a million of them need no memory of their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from collector import durable
from merge.metrics import coverage_metrics, field_metrics, group_metrics, key_metrics, pass_metrics, repeat_metrics
from merge.select import repeat_of
from merge.table import RowTable

_INDENT: Final = b"\n      "


def publish_aggregate(path: Path, table: RowTable, inventory: Sequence[int], *, agent: str, expected: int) -> str:
    """Publish the metrics of ``table`` at ``path`` and return the SHA-256 of its bytes.

    ``inventory`` holds the rising keys of all shards that are there; ``expected`` counts rollouts, missing shards included.
    """
    hasher = hashlib.sha256()

    def pieces() -> Iterator[bytes]:
        for piece in encode_aggregate(table, inventory, agent=agent, expected=expected):
            hasher.update(piece)
            yield piece

    durable.publish_lines(path, pieces())
    return hasher.hexdigest()


def encode_aggregate(table: RowTable, inventory: Sequence[int], *, agent: str, expected: int) -> Iterator[bytes]:
    """The file's bytes in pieces."""
    fields, passes, coverage = field_metrics(table), pass_metrics(table), coverage_metrics(table, expected=expected)
    repeats = len({repeat_of(key) for key in inventory})
    # Without one measured rollout there is nothing but coverage to tell.
    overall = {"num_repeats": repeats, **fields, **passes, **coverage} if fields else coverage
    yield b'[\n  {\n    "agent_ref": ' + orjson.dumps({"name": agent})
    yield b',\n    "agent_metrics": ' + _object(overall)
    yield b',\n    "key_metrics": ' + _object(key_metrics(fields, passes, coverage))
    yield b',\n    "group_level_metrics": '
    yield from _array(group_metrics(table, inventory))
    yield b',\n    "repeat_level_metrics": '
    yield from _array(repeat_metrics(table, inventory))
    yield b"\n  }\n]\n"


def _object(values: dict[str, Any]) -> bytes:
    return orjson.dumps(values, option=orjson.OPT_INDENT_2).replace(b"\n", b"\n    ")


def _array(entries: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    begin = b"["
    for entry in entries:
        yield begin + _INDENT + orjson.dumps(entry)
        begin = b","
    yield b"[]" if begin == b"[" else b"\n    ]"

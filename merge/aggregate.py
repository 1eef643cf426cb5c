"""The file ``<stem>_aggregate_metrics.json``: an array with one entry an agent, as readers of NeMo Gym's file expect it.

Tasks are written as they are computed, one a line, so that a million of them need no memory of their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from collector import durable
from merge.attempts import AttemptFigures
from merge.counting import Zeros
from merge.metrics import WEIGHTING, Metrics, across_repeats, coverage_metrics, field_metrics, group_metrics, key_metrics
from merge.metrics import repeat_metrics as metrics_of_repeats
from merge.passes import pass_metrics
from merge.plugins import plugin_metrics
from merge.select import repeat_of
from merge.table import RowTable

#: Bytes written at once.
_BLOCK: Final = 1 << 20
_INDENT: Final = b"\n      "


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRows:
    """The rows of one agent and what they are held against."""

    agent: str
    table: RowTable
    #: The rising keys of all rollouts of the inventories that are there.
    inventory: Sequence[int]
    #: Rollouts, those of missing shards included; None when nobody knows.
    expected: int | None
    #: Digest of the tasks' content, so that two runs of one dataset can be compared task by task; empty when nobody knows.
    source_digest: str = ""
    is_partial: bool = False
    zeros: Zeros = field(default_factory=Zeros)
    attempts: AttemptFigures | None = None
    #: Further metrics by name, from other people's packages.
    plugins: tuple[str, ...] = ()


def publish_aggregate(path: Path, agents: Sequence[AgentRows]) -> str:
    """Publish the metrics of ``agents`` at ``path`` and return the SHA-256 of its bytes."""
    hasher = hashlib.sha256()
    with durable.staged(path) as file:
        for block in _blocks(encode_aggregate(agents)):
            hasher.update(block)
            file.write(block)
    return hasher.hexdigest()


def _blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    found: list[bytes] = []
    size = 0
    for piece in pieces:
        found.append(piece)
        size += len(piece)
        if size >= _BLOCK:
            yield b"".join(found)
            found, size = [], 0
    yield b"".join(found)


def encode_aggregate(agents: Sequence[AgentRows]) -> Iterator[bytes]:
    """The file's bytes in pieces."""
    begin = b"[\n  {"
    for agent in agents:
        yield begin
        yield from _entry(agent)
        yield b"\n  }"
        begin = b",\n  {"
    yield b"\n]\n" if agents else b"[]\n"


def _entry(rows: AgentRows) -> Iterator[bytes]:
    table = rows.zeros.applied(rows.table)
    repeats = metrics_of_repeats(table, rows.inventory)
    passes = pass_metrics(table)
    fields = field_metrics(table)
    coverage = {**coverage_metrics(rows.table, expected=rows.expected), **rows.zeros.metrics(rows.table)}
    overall: Mapping[str, Any] = coverage
    if fields:
        count = len({repeat_of(key) for key in rows.inventory})
        plugins = plugin_metrics(rows.plugins, table)
        overall = {"num_repeats": count, **fields, **passes.metrics, **across_repeats(repeats), **plugins, **coverage}
    # Without one measured rollout there is nothing but coverage to tell.
    head: dict[str, Any] = {"partial": True} if rows.is_partial else {}
    head |= {"agent_ref": {"name": rows.agent}, "source_digest": rows.source_digest, "weighting": WEIGHTING}
    yield from _members(head)
    yield b',\n    "agent_metrics": ' + _object(overall)
    yield b',\n    "key_metrics": ' + _object(key_metrics(fields, passes.metrics, coverage))
    yield b',\n    "per_sample_aggregate": ' + _object(passes.per_sample)
    yield b',\n    "perf_summary": ' + _object(_performance(rows))
    yield b',\n    "group_level_metrics": '
    yield from _array(group_metrics(table, rows.inventory))
    yield b',\n    "repeat_level_metrics": '
    yield from _array(repeats)


def _performance(rows: AgentRows) -> Metrics:
    return (rows.attempts or AttemptFigures()).metrics(rows.table)


def _members(values: Mapping[str, Any]) -> Iterator[bytes]:
    begin = b"\n    "
    for name, value in values.items():
        yield begin + orjson.dumps(name) + b": " + _object(value)
        begin = b",\n    "


def _object(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).replace(b"\n", b"\n    ")


def _array(entries: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    begin = b"["
    for entry in entries:
        yield begin + _INDENT + orjson.dumps(entry)
        begin = b","
    yield b"[]" if begin == b"[" else b"\n    ]"

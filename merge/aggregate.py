"""The file ``<stem>_aggregate_metrics.json``: an array with one entry an agent, as readers of NeMo Gym's file expect it.

Tasks are written as they are computed, one a line, so that a million of them need no memory of their own.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson

from collector import durable
from collector.durable import StagedFile
from merge.fan_out import run_tasks
from merge.inputs.shards import ShardView
from merge.metrics.attempts import read_attempts
from merge.metrics.counting import Zeros
from merge.metrics.fields import (
    WEIGHTING,
    Metrics,
    across_repeats,
    coverage_metrics,
    field_metrics,
    key_metrics,
    repeat_metrics,
)
from merge.metrics.groups import group_metrics, parts_of_tasks
from merge.metrics.passes import pass_metrics, subset_metrics
from merge.metrics.performance import performance_metrics
from merge.metrics.table import RowTable
from merge.plugins import plugin_metrics

#: Bytes written at once.
_BLOCK: Final = 1 << 20
_INDENT: Final = b"\n      "
#: Tasks encoded by one call, about half a megabyte of text, and rollouts from which on the work is shared out.
_GROUPS: Final = 500
_WORTH_IT: Final = 20_000


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
    #: Where the journals are that say what all attempts cost.
    shards: Sequence[ShardView] = ()
    #: Further metrics by name, from other people's packages.
    plugins: tuple[str, ...] = ()


def publish_aggregate(path: Path, agents: Sequence[AgentRows]) -> None:
    """Publish the metrics of ``agents`` at ``path``."""
    with durable.staged(path) as file:
        write_aggregate(file, agents)


def write_aggregate(file: StagedFile, agents: Sequence[AgentRows]) -> str:
    """Write the metrics of ``agents`` and return the SHA-256 of their bytes. Raises ConfigError for a plug-in that fails."""
    hasher = hashlib.sha256()
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
    inventory = memoryview(array("q", rows.inventory) if not isinstance(rows.inventory, array) else rows.inventory)
    tasks: list[Callable[[], Any]] = [
        partial(_repeats, table, inventory),
        partial(_performance, rows),
        partial(pass_metrics, table),
        partial(field_metrics, table),
        partial(subset_metrics, table),
        *(partial(_groups, table, inventory[part]) for part in parts_of_tasks(inventory, _GROUPS)),
    ]
    results = run_tasks(tasks, is_worth_it=len(inventory) >= _WORTH_IT)
    repeats, across = next(results)
    performance, passes, fields, subsets = (next(results) for _ in range(4))
    coverage = {**coverage_metrics(rows.table, expected=rows.expected), **rows.zeros.metrics(rows.table)}
    overall: Mapping[str, Any] = coverage
    if fields:
        count = len(np.unique(np.asarray(inventory) & 0xFFFFFFFF))
        ours = {"num_repeats": count, **fields, **passes.metrics, **subsets, **across}
        overall = {**ours, **plugin_metrics(rows.plugins, table, {*ours, *coverage}), **coverage}
    # Without one measured rollout there is nothing but coverage to tell.
    head: dict[str, Any] = {"partial": True} if rows.is_partial else {}
    head |= {"agent_ref": {"name": rows.agent}, "source_digest": rows.source_digest, "weighting": WEIGHTING}
    yield from _members(head)
    yield b',\n    "agent_metrics": ' + _object(overall)
    yield b',\n    "key_metrics": ' + _object(key_metrics(fields, {**passes.metrics, **subsets}, coverage))
    yield b',\n    "per_sample_aggregate": ' + _object(passes.per_sample)
    yield b',\n    "perf_summary": ' + _object(performance)
    yield b',\n    "group_level_metrics": '
    yield from _array(results)
    yield b',\n    "repeat_level_metrics": '
    yield from _array(_lines(repeats))


def _repeats(table: RowTable, inventory: Sequence[int]) -> tuple[list[dict[str, Any]], Metrics]:
    repeats = repeat_metrics(table, inventory)
    return repeats, across_repeats(repeats)


def _performance(rows: AgentRows) -> Metrics:
    return {**performance_metrics(rows.table), **read_attempts(rows.shards).metrics(rows.table)}


def _members(values: Mapping[str, Any]) -> Iterator[bytes]:
    begin = b"\n    "
    for name, value in values.items():
        yield begin + orjson.dumps(name) + b": " + _object(value)
        begin = b",\n    "


def _object(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).replace(b"\n", b"\n    ")


def _groups(table: RowTable, inventory: Sequence[int]) -> bytes:
    return b",".join(_lines(group_metrics(table, inventory)))


def _lines(entries: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    return (_INDENT + orjson.dumps(entry) for entry in entries)


def _array(entries: Iterable[bytes]) -> Iterator[bytes]:
    begin = b"["
    for entry in entries:
        yield begin + entry
        begin = b","
    yield b"[]" if begin == b"[" else b"\n    ]"

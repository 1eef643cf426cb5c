"""What all attempts cost, those that were not selected included: seconds and tokens, beside those of the selected ones.

Seconds come from the journal. Tokens come from rows: selected ones pass by anyway, the others are read here.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from collector import rows
from collector.inventory import line_blocks
from merge.figures import in_order, mean_of, quantile
from merge.metrics import Metrics, present
from merge.shards import ShardView
from merge.table import RowTable

TOKENS: Final = ("input_tokens", "output_tokens", "total_tokens")
_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_SUCCESS: Final = "success"
_OUTCOMES: Final = frozenset({_SUCCESS, "failure"})


class _Outcome(msgspec.Struct, frozen=True, gc=False):
    """What of a journal event matters here."""

    event: str
    offset: int = -1
    length: int = 0
    elapsed_s: float | None = None


class _Usage(msgspec.Struct, frozen=True):
    input_tokens: int | float | None = None
    output_tokens: int | float | None = None
    total_tokens: int | float | None = None


class _Response(msgspec.Struct, frozen=True):
    usage: _Usage | None = None


class _Row(msgspec.Struct, frozen=True):
    response: _Response | None = None


_events: Final = msgspec.json.Decoder(_Outcome)
_rows: Final = msgspec.json.Decoder(_Row)


@dataclass(slots=True)
class AttemptFigures:
    """Seconds of attempts with an outcome, of selected rows and of all others, and tokens of those others."""

    selected_s: array[float] = field(default_factory=lambda: array("d"))
    other_s: array[float] = field(default_factory=lambda: array("d"))
    other_tokens: dict[str, array[float]] = field(default_factory=lambda: {name: array("d") for name in TOKENS})
    truncated: int = 0

    def metrics(self, table: RowTable) -> Metrics:
        """``attempts/*`` over all attempts, ``selected/*`` over the rows of ``table``, and the count of truncated answers."""
        metrics: Metrics = {"selected/truncated": self.truncated}
        metrics.update(_seconds("attempts/elapsed_s", self.selected_s + self.other_s))
        metrics.update(_seconds("selected/elapsed_s", self.selected_s))
        for name in TOKENS:
            selected = present(table.column(name)) if name in table.fields else array("d")
            metrics.update(_tokens(f"selected/{name}", selected))
            metrics.update(_tokens(f"attempts/{name}", selected + self.other_tokens[name]))
        return metrics


def read_attempts(shards: Iterable[ShardView]) -> AttemptFigures:
    """The figures of ``shards``, from their journals as far as they were read. Masked rows count: they were paid for."""
    figures = AttemptFigures()
    for shard in shards:
        figures.truncated += shard.coverage.truncated
        journal = shard.marks.get(shard.artifacts.journal)
        if journal is not None:
            _read_shard(figures, shard, journal.size_bytes)
    return figures


def _read_shard(figures: AttemptFigures, shard: ShardView, journal_size: int) -> None:
    # In nearly every shard each attempt has a row that was selected, and nothing needs to be looked up.
    is_plain = shard.coverage.attempts == len(shard.rows)
    selected = np.sort([] if is_plain else np.asarray(shard.rows.offsets))
    for event in _outcomes(shard.artifacts.journal, journal_size):
        is_selected = is_plain or (event.event == _SUCCESS and _holds(selected, event.offset))
        if event.elapsed_s is not None:
            (figures.selected_s if is_selected else figures.other_s).append(event.elapsed_s)
        if not is_selected:
            path = shard.artifacts.rollouts if event.event == _SUCCESS else shard.artifacts.failures
            _add_tokens(figures, _bytes_at(path, event))


def _holds(ordered: npt.NDArray[np.int64], value: int) -> bool:
    place = np.searchsorted(ordered, value)
    return bool(place < len(ordered) and ordered[place] == value)


def _outcomes(journal: Path, size: int) -> Iterator[_Outcome]:
    read = 0
    for block in line_blocks(journal):
        whole = block[: min(size - read, block.rfind(b"\n") + 1)]
        read += len(block)
        yield from (event for event in _events.decode_lines(whole) if event.event in _OUTCOMES)
        if read >= size:
            return


def _bytes_at(path: Path, event: _Outcome) -> bytes:
    with path.open("rb", buffering=0) as file:
        return os.pread(file.fileno(), event.length, event.offset)


def _add_tokens(figures: AttemptFigures, line: bytes) -> None:
    try:
        row = rows.parse_part(_rows, line)
    except ValueError:
        # A row cut off by a crash, or a usage of another shape: nothing is known of its tokens.
        return
    usage = row.response.usage if row.response else None
    for name in TOKENS:
        value = getattr(usage, name, None)
        if value is not None:
            figures.other_tokens[name].append(float(value))


def _seconds(name: str, values: array[float]) -> Metrics:
    if not values:
        return {}
    ordered = in_order(values)
    shown = {f"{name}/{label}": quantile(ordered, fraction) for label, fraction in _QUANTILES.items()}
    return {f"{name}/mean": mean_of(ordered), **shown, f"{name}/max": ordered[-1], f"{name}/count": len(ordered)}


def _tokens(name: str, values: array[float]) -> Metrics:
    if not values:
        return {}
    ordered = in_order(values)
    return {f"{name}/mean": mean_of(ordered), f"{name}/median": quantile(ordered, 0.5), f"{name}/total": sum(ordered)}

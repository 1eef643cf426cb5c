"""What all attempts cost, those that were not selected included: seconds and tokens, beside those of the selected ones.

Seconds come from the journal. Tokens come from rows: selected ones pass by anyway, the others are read here.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from collector import rows
from collector.artifacts import RunArtifacts
from collector.inventory import line_blocks
from merge.figures import mean_of, quantile
from merge.metrics import Metrics, present
from merge.select import SelectedRows
from merge.table import RowTable

TOKENS: Final = ("input_tokens", "output_tokens", "total_tokens")
_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
#: Rows of attempts that were not selected, read at once.
_SUCCESS: Final = "success"
_FAILURE: Final = "failure"


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
    """Seconds of every attempt with an outcome and of every selected one; tokens of the attempts that were not selected."""

    all_s: array[float] = field(default_factory=lambda: array("d"))
    selected_s: array[float] = field(default_factory=lambda: array("d"))
    other_tokens: dict[str, array[float]] = field(default_factory=lambda: {name: array("d") for name in TOKENS})
    truncated: int = 0

    def add(self, other: AttemptFigures) -> None:
        """Take the figures of one more shard."""
        self.all_s.extend(other.all_s)
        self.selected_s.extend(other.selected_s)
        for name, values in other.other_tokens.items():
            self.other_tokens[name].extend(values)
        self.truncated += other.truncated

    def metrics(self, table: RowTable) -> Metrics:
        """``attempts/*`` over all attempts, ``selected/*`` over the rows of ``table``, and the count of truncated answers."""
        metrics: Metrics = {"selected/truncated": self.truncated}
        metrics.update(_seconds("attempts/elapsed_s", self.all_s))
        metrics.update(_seconds("selected/elapsed_s", self.selected_s))
        for name in TOKENS:
            selected = present(table.column(name)) if name in table.fields else []
            metrics.update(_tokens(f"selected/{name}", selected))
            metrics.update(_tokens(f"attempts/{name}", [*selected, *self.other_tokens[name]]))
        return metrics


def read_attempts(artifacts: RunArtifacts, selected: SelectedRows, *, journal_size: int) -> AttemptFigures:
    """The figures of one shard, from the first ``journal_size`` bytes of its journal. Masked rows count: they were paid for."""
    figures = AttemptFigures()
    offsets = _offsets_if_some_are_not(selected, artifacts.journal, journal_size)
    for event in _outcomes(artifacts.journal, journal_size):
        is_selected = event.event == _SUCCESS and (offsets is None or event.offset in offsets)
        if event.elapsed_s is not None:
            figures.all_s.append(event.elapsed_s)
            if is_selected:
                figures.selected_s.append(event.elapsed_s)
        if not is_selected:
            path = artifacts.rollouts if event.event == _SUCCESS else artifacts.failures
            _add_tokens(figures, _bytes_at(path, event))
    return figures


def _offsets_if_some_are_not(selected: SelectedRows, journal: Path, size: int) -> frozenset[int] | None:
    """The offsets of the selected rows; None when every success is selected, as in nearly every shard."""
    successes = sum(event.event == _SUCCESS for event in _outcomes(journal, size))
    return None if successes <= len(selected) else frozenset(selected.offsets)


def _outcomes(journal: Path, size: int) -> Iterator[_Outcome]:
    read = 0
    for block in line_blocks(journal):
        whole = block[: min(size - read, block.rfind(b"\n") + 1)]
        read += len(block)
        for event in _events.decode_lines(whole):
            if event.event in (_SUCCESS, _FAILURE):
                yield event
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


def _seconds(name: str, values: Sequence[float]) -> Metrics:
    if not values:
        return {}
    ordered = sorted(values)
    shown = {f"{name}/{label}": quantile(ordered, fraction) for label, fraction in _QUANTILES.items()}
    return {f"{name}/mean": mean_of(ordered), **shown, f"{name}/max": ordered[-1], f"{name}/count": len(ordered)}


def _tokens(name: str, values: Sequence[float]) -> Metrics:
    if not values:
        return {}
    ordered = sorted(values)
    return {f"{name}/mean": mean_of(ordered), f"{name}/median": quantile(ordered, 0.5), f"{name}/total": sum(ordered)}

"""What all attempts cost, those that were not selected included: seconds and tokens, beside those of the selected ones.

Seconds come from the journal. Tokens come from rows, the policy's and its judge's apart: selected ones pass by anyway, those
that were not selected, or are masked, are read here. An answer that was graded again stands in two rows of its rollout and was
paid for once.
"""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from collector.formats import rows
from collector.formats.inventory import line_blocks
from collector.outcome_checks import is_reward
from collector.verifiers.judge_saved import INPUT_TOKENS, OUTPUT_TOKENS
from merge.inputs.shards import ShardView
from merge.metrics.fields import Metrics, present
from merge.metrics.figures import in_order, mean_of, quantile
from merge.metrics.table import RowTable

_POLICY_TOKENS: Final = ("input_tokens", "output_tokens", "total_tokens")
_JUDGE_TOKENS: Final = (INPUT_TOKENS, OUTPUT_TOKENS)
TOKENS: Final = (*_POLICY_TOKENS, *_JUDGE_TOKENS)
_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_SUCCESS: Final = "success"
_OUTCOMES: Final = frozenset({_SUCCESS, "failure"})


class _Outcome(msgspec.Struct, frozen=True, gc=False):
    """What of a journal event matters here."""

    event: str
    rollout_id: str = ""
    offset: int = -1
    length: int = 0
    elapsed_s: float | None = None
    masked: bool = False


class _Response(msgspec.Struct, frozen=True):
    # Any: what a server or a dataset wrote there may be of any shape.
    id: Any = None
    created_at: Any = None
    usage: Any = None


class _Row(msgspec.Struct, frozen=True):
    response: _Response | None = None
    judge_input_tokens: Any = None
    judge_output_tokens: Any = None


#: Figures of at least one number, which rise.
_Figures: TypeAlias = Callable[[Sequence[float]], Metrics]

_events: Final = msgspec.json.Decoder(_Outcome)
_rows: Final = msgspec.json.Decoder(_Row)


class _Answer(NamedTuple):
    """An answer of the policy's: its tokens by name, and what tells it from others; None where its server gave it no id."""

    identity: str | None
    tokens: dict[str, float]


@dataclass(slots=True)
class AttemptFigures:
    """Seconds of attempts with an outcome, of selected rows and of all others, and tokens of rows that are in no table."""

    selected_s: array[float] = field(default_factory=lambda: array("d"))
    other_s: array[float] = field(default_factory=lambda: array("d"))
    other_tokens: dict[str, array[float]] = field(default_factory=lambda: {name: array("d") for name in TOKENS})
    #: The part of ``other_tokens`` that stands in a selected row as well.
    selected_too: dict[str, array[float]] = field(default_factory=lambda: {name: array("d") for name in TOKENS})
    truncated: int = 0

    def metrics(self, table: RowTable) -> Metrics:
        """``attempts/*`` over all attempts, ``selected/*`` over the rows of ``table``, and the count of truncated answers."""
        metrics: Metrics = {"selected/truncated": self.truncated}
        metrics.update(_of_both("elapsed_s", _seconds, self.selected_s, self.selected_s + self.other_s))
        for name in TOKENS:
            selected = present(table.column(name)) if name in table.fields else array("d")
            metrics.update(_of_both(name, _tokens, selected, selected + self._others(name)))
        return metrics

    def _others(self, name: str) -> array[float]:
        others, twice = self.other_tokens[name], self.selected_too[name]
        return array("d", (Counter(others) - Counter(twice)).elements()) if twice else others


def read_attempts(shards: Iterable[ShardView]) -> AttemptFigures:
    """The figures of ``shards``, from their journals as far as they were read. Masked rows count: they were paid for."""
    figures = AttemptFigures()
    for shard in shards:
        figures.truncated += shard.coverage.truncated
        journal = shard.marks.get(shard.artifacts.journal)
        if shard.elapsed is not None:
            figures.selected_s.extend(shard.elapsed)
        elif journal is not None:
            _read_shard(figures, shard, journal.size_bytes)
    return figures


def _read_shard(figures: AttemptFigures, shard: ShardView, journal_size: int) -> None:
    selected = np.sort(np.asarray(shard.rows.offsets))
    # By rollout, the answers that were not selected: a later attempt may have graded one of them again.
    known: dict[str, set[str]] = {}
    with shard.artifacts.rollouts.open("rb") as results, shard.artifacts.failures.open("rb") as failures:
        for event in _outcomes(shard.artifacts.journal, journal_size):
            is_success = event.event == _SUCCESS
            is_selected = is_success and _holds(selected, event.offset)
            if event.elapsed_s is not None:
                (figures.selected_s if is_selected else figures.other_s).append(event.elapsed_s)
            is_in_table = is_selected and not event.masked
            if is_in_table and event.rollout_id not in known:
                continue
            file = results if is_success else failures
            row = _row_in(os.pread(file.fileno(), event.length, event.offset))
            if row is None:
                continue
            answer = _answer_of(row)
            is_known = answer.identity in known.get(event.rollout_id, ())
            if is_in_table:
                if is_known:
                    _add(figures.selected_too, answer.tokens)
                continue
            if answer.identity is not None and not event.masked:
                known.setdefault(event.rollout_id, set()).add(answer.identity)
            if not is_known:
                _add(figures.other_tokens, answer.tokens)
            _add(figures.other_tokens, _numbers({name: getattr(row, name) for name in _JUDGE_TOKENS}))


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


def _row_in(line: bytes) -> _Row | None:
    try:
        return rows.parse_part(_rows, line)
    except ValueError:
        # A row cut off by a crash: nothing is known of its tokens.
        return None


def _answer_of(row: _Row) -> _Answer:
    response = row.response
    usage = response.usage if response else None
    tokens = _numbers({name: usage.get(name) for name in _POLICY_TOKENS} if isinstance(usage, dict) else {})
    if response is None or not isinstance(response.id, str) or not response.id:
        return _Answer(None, tokens)
    # A server that gives one id to all it says still tells when it said it.
    return _Answer(repr((response.id, response.created_at, tokens)), tokens)


def _numbers(found: dict[str, Any]) -> dict[str, float]:
    # A number beyond the range of a float could not be added to others.
    return {name: float(value) for name, value in found.items() if is_reward(value)}


def _add(tokens: dict[str, array[float]], found: dict[str, float]) -> None:
    for name, value in found.items():
        tokens[name].append(value)


def _of_both(name: str, figures: _Figures, selected: array[float], every: array[float]) -> Metrics:
    """The figures of selected rows and of all attempts, which are nearly always the same."""
    of_selected = figures(in_order(selected)) if selected else {}
    of_every = of_selected if len(every) == len(selected) else figures(in_order(every))
    metrics: Metrics = {f"attempts/{name}/{label}": value for label, value in of_every.items()}
    return {**metrics, **{f"selected/{name}/{label}": value for label, value in of_selected.items()}}


def _seconds(ordered: Sequence[float]) -> Metrics:
    shown = {label: quantile(ordered, fraction) for label, fraction in _QUANTILES.items()}
    return {"mean": mean_of(ordered), **shown, "max": ordered[-1], "count": len(ordered)}


def _tokens(ordered: Sequence[float]) -> Metrics:
    return {"mean": mean_of(ordered), "median": quantile(ordered, 0.5), "total": sum(ordered)}

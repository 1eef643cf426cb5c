"""Figures of what rollouts cost, from the ``ng_perf`` that NeMo Gym writes into rows of observed rollouts. Pure.

Names and definitions are those of NeMo Gym's ``perf_summary``; a figure that no row has data for is absent.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Final

import numpy as np

from merge.metrics.fields import Metrics, present
from merge.metrics.figures import deviation, in_order, mean_of, quantile
from merge.metrics.table import RowTable
from merge.rows.numbers import PERFORMANCE

_TOKENS: Final = ("prompt_tokens", "cached_prompt_tokens", "completion_tokens", "reasoning_tokens")
_TURNS: Final = "num_turns"
_OBSERVED: Final = "token_observability_coverage"


def performance_metrics(table: RowTable) -> Metrics:
    """The figures over all unmasked rows; nothing when none of them has an ``ng_perf`` with a number in it."""
    if not table.has(PERFORMANCE):
        return {}
    columns = {name: table.column(PERFORMANCE + name) for name in (*_TOKENS, _TURNS, _OBSERVED, "total_latency_ms")}
    is_there = np.any([~np.isnan(np.asarray(column)) for column in columns.values()], axis=0)
    rows = len(table.keys)
    if not np.any(is_there):
        return {}
    metrics: Metrics = {
        "overall_observability_coverage": int(np.count_nonzero(is_there)) / rows,
        _OBSERVED: int(np.count_nonzero(np.asarray(columns[_OBSERVED]) > 0)) / rows,
    }
    for name in _TOKENS:
        if values := present(columns[name]):
            metrics.update({f"mean_{name}": mean_of(values), f"median_{name}": _at(values, 0.5), f"total_{name}": sum(values)})
    metrics.update(_turns(present(columns[_TURNS])))
    metrics.update(_tokens_per_turn(columns["completion_tokens"], columns[_TURNS]))
    if latencies := present(columns["total_latency_ms"]):
        shares = {f"total_latency_p{percent}_ms": _at(latencies, percent / 100) for percent in (50, 90, 99)}
        metrics.update({**shares, "total_latency_mean_ms": mean_of(latencies)})
    return metrics


def _turns(values: array[float]) -> Metrics:
    if not values:
        return {}
    return {
        "mean_num_turns": mean_of(values),
        "median_num_turns": _at(values, 0.5),
        # The population's, as in NeMo Gym; all other deviations in the file are those of samples.
        "std_num_turns": deviation(values, of_population=True),
        "min_num_turns": min(values),
        "p90_num_turns": _at(values, 0.9),
        "max_num_turns": max(values),
    }


def _tokens_per_turn(tokens: array[float], turns: array[float]) -> Metrics:
    pairs = zip(tokens, turns, strict=True)
    ratios = array("d", (count / of for count, of in pairs if of > 0 and not math.isnan(count)))
    return {"mean_tokens_per_turn": mean_of(ratios), "median_tokens_per_turn": _at(ratios, 0.5)} if ratios else {}


def _at(values: Sequence[float], fraction: float) -> float:
    return quantile(in_order(values), fraction)

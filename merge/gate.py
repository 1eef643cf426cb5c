"""A gate: how much lower a metric may be, held against what the evidence says. Pure.

It passes only when the whole 95 % interval of the difference is at or above the limit and coverage is enough to say so. A
point estimate alone would pass by luck half of the time at the limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from collector.errors import RequestError
from merge.compare import Comparison, Verdict

_USAGE: Final = "It is METRIC:min_delta=NUMBER, for example mean/reward:min_delta=-0.01."


class GateState(StrEnum):
    """What a gate says."""

    PASSED = "passed"
    FAILED = "failed"
    #: The interval lies on both sides of the limit, or too much is missing: more evidence is needed.
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Gate:
    """``metric`` of the candidate minus that of the base is to be at least ``min_delta``."""

    metric: str
    min_delta: float


@dataclass(frozen=True, slots=True)
class GateResult:
    """A gate with its finding for one candidate."""

    gate: Gate
    candidate: str
    state: GateState
    reason: str


def parse_gate(text: str) -> Gate:
    """The gate that ``text`` says. Raises RequestError."""
    metric, _, limit = text.rpartition(":")
    name, _, number = limit.partition("=")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not metric or name != "min_delta" or not math.isfinite(value):
        raise RequestError(f"no gate: {text!r}.", _USAGE)
    return Gate(metric, value)


def judge(gate: Gate, comparison: Comparison) -> GateResult:
    """What ``comparison`` means for ``gate``. A metric that no side has is a RequestError."""
    found = next((metric for metric in comparison.metrics if metric.metric == gate.metric), None)
    if found is None:
        names = ", ".join(metric.metric for metric in comparison.metrics)
        raise RequestError(f"no metric {gate.metric!r} to guard.", f"There are: {names}.")
    state, reason = GateState.UNDECIDED, found.reason
    if found.verdict is not Verdict.INSUFFICIENT and found.interval is not None:
        low, high = found.interval
        reason = f"the difference lies in [{low:.4g}, {high:.4g}], the limit is {gate.min_delta:g}"
        if low >= gate.min_delta:
            state = GateState.PASSED
        elif high < gate.min_delta:
            state = GateState.FAILED
    return GateResult(gate, str(comparison.candidate.path), state, reason)

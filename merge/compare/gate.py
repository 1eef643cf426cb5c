"""A gate: how much lower a metric may be, held against what the evidence says. Pure.

It passes only when the whole 95 % interval of the difference is at or above the limit and coverage is enough to say so. A
point estimate alone would pass by luck half of the time at the limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from collector.errors import RequestError
from merge.compare.verdict import Comparison, Verdict

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
    # Python also reads 0_01, which is 1, and the digits of every script.
    is_plain = number.isascii() and "_" not in number
    if not is_plain or not metric or name != "min_delta" or not math.isfinite(value):
        raise RequestError(f"no gate: {text!r}.", _USAGE)
    return Gate(metric, value)


def judge_all(gates: Sequence[Gate], comparisons: Sequence[Comparison]) -> list[GateResult]:
    """What each of ``comparisons`` means for each of ``gates``. A metric that no run has is a RequestError, if any has one."""
    names = dict.fromkeys(metric.metric for comparison in comparisons for metric in comparison.metrics)
    for gate in gates:
        if names and gate.metric not in names:
            raise RequestError(f"no metric {gate.metric!r} to guard.", f"There are: {', '.join(names)}.")
    return [judge(gate, comparison) for comparison in comparisons for gate in gates]


def judge(gate: Gate, comparison: Comparison) -> GateResult:
    """What ``comparison`` means for ``gate``."""
    found = next((metric for metric in comparison.metrics if metric.metric == gate.metric), None)
    if found is None:
        # As where only one side measured something: the evidence is missing, and the gate is not wrong.
        return GateResult(gate, str(comparison.candidate.path), GateState.UNDECIDED, "neither side has it")
    state, reason = GateState.UNDECIDED, found.reason
    if found.verdict is not Verdict.INSUFFICIENT and found.interval is not None:
        low, high = found.interval
        reason = f"the difference lies in [{low:.4g}, {high:.4g}], the limit is {gate.min_delta:g}"
        if low >= gate.min_delta:
            state = GateState.PASSED
        elif high < gate.min_delta:
            state = GateState.FAILED
    return GateResult(gate, str(comparison.candidate.path), state, reason)

"""The fourteen checks by name, what each looks at, and which of them a user may leave out."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

from collector.errors import RequestError


class Check(StrEnum):
    """Every check, in the order of reports. The names are those of NeMo Gym."""

    EXECUTION_ERROR = "check_execution_error"
    UNREADABLE = "record_unreadable"
    DUPLICATE_IDENTITY = "rollout_duplicate_identity"
    MISSING_AGENT_TURNS = "rollout_missing_agent_turns"
    ENDED_ON_FAILED_CALL = "rollout_ended_on_failed_model_call"
    HOLLOW_TURN = "agent_turn_hollow"
    ZERO_COMPLETION_TOKENS = "model_call_zero_completion_tokens"
    MISSING_TOKEN_COUNTS = "model_call_missing_token_counts"  # noqa: S105 - a check, not a password
    CAPTURE_MISMATCH = "trajectory_capture_mismatch"
    CALL_FAILED = "model_call_failed"
    TOKEN_COUNT_MISMATCH = "rollout_token_count_mismatch"  # noqa: S105 - as above
    RUNAWAY_GENERATION = "model_call_runaway_generation"
    TASK_UNHEALTHY = "task_consistently_unhealthy"
    TASK_WITHOUT_SUCCESS = "task_no_successful_model_calls"


class Verdict(StrEnum):
    """What all checks of one row come to."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    #: No finding, and some check could not be evaluated.
    UNOBSERVED = "unobserved"


TASK_CHECKS: Final = (Check.TASK_UNHEALTHY, Check.TASK_WITHOUT_SUCCESS)
ROLLOUT_CHECKS: Final = tuple(check for check in Check if check not in TASK_CHECKS)
#: Position of a rollout's check in the bit set of those that could not be evaluated.
BIT: Final = {check: 1 << i for i, check in enumerate(ROLLOUT_CHECKS)}


def parse_ignored(names: str | Iterable[str]) -> frozenset[Check]:
    """The checks that ``names`` (a list, or one text with commas) say. Raises RequestError for a name that is no check."""
    words = names.split(",") if isinstance(names, str) else names
    wanted = [word.strip() for word in words if word.strip()]
    unknown = [name for name in wanted if name not in set(Check)]
    if unknown:
        near = difflib.get_close_matches(unknown[0], list(Check), n=1)
        hint = f"Did you mean {near[0]}? " if near else ""
        raise RequestError(f"no such health check: {', '.join(unknown)}.", f"{hint}Choose from: {', '.join(Check)}.")
    return frozenset(map(Check, wanted))


def names_in(bits: int) -> Sequence[Check]:
    """The checks in a bit set, in report order."""
    return [check for check in ROLLOUT_CHECKS if bits & BIT[check]]


def verdict_of(findings: int, unobserved: int) -> Verdict:
    """The verdict over so many findings and a bit set of checks without evidence."""
    if findings:
        return Verdict.UNHEALTHY
    return Verdict.UNOBSERVED if unobserved else Verdict.HEALTHY

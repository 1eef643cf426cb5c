"""What may be dispatched: pure decisions over the history of one rollout."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

from collector.outcomes import FailureClass, RolloutState
from collector.settings import RetrySettings
from collector.state.codes import OPEN_CODES, Code, Past
from collector.state.history import History

#: A plain number, since it is compared once a rollout.
_NEVER = int(Code.NEVER)
#: States in which a rollout has what it needs.
COMPLETED = frozenset({RolloutState.MEASURED, RolloutState.MASKED, RolloutState.UNSCORED, RolloutState.OMITTED})
#: Classes that are final within a run and can be cured between runs; ``retry_terminal_timeouts`` opens them again.
CURABLE = frozenset({"timeout_exceeded", "reference_missing", "eval_missing", "transport_ineligible"})
#: So many interruptions without a single outcome make a rollout suspect of killing its worker.
SUSPICIOUS = 3


def is_terminal(past: Past, retry: RetrySettings) -> bool:
    """Whether the latest failure ends the rollout, whatever budget is left."""
    if past.state is not RolloutState.FAILED:
        return False
    if retry.retry_terminal_timeouts:
        if past.failure_class in CURABLE:
            return False
        if past.failure_class == FailureClass.SKIPPED:
            return True
    return past.terminal


def has_budget(past: Past, retry: RetrySettings) -> bool:
    """Whether another attempt is allowed. Interruptions share ``max_attempts`` unless they have an allowance of their own."""
    if retry.max_interruptions is None:
        return past.dispatched < retry.max_attempts
    return past.recorded < retry.max_attempts and past.interrupted <= retry.max_interruptions


def attempts_left(past: Past, retry: RetrySettings) -> int:
    """How many attempts ``max_attempts`` still allows, interruptions aside when they have an allowance of their own."""
    used = past.dispatched if retry.max_interruptions is None else past.recorded
    return max(0, retry.max_attempts - used)


def may_dispatch(past: Past, retry: RetrySettings) -> bool:
    """Whether the rollout is unfinished and may be tried again."""
    return past.state not in COMPLETED and not is_terminal(past, retry) and has_budget(past, retry)


def pause_s(retry: RetrySettings, *, failures: int, asked_s: float | None) -> float:
    """Seconds before the next attempt: doubled from failure to failure, never shorter than the other side asked for.

    Never longer than ``backoff_max_s``.
    """
    # A float overflows beyond a thousand doublings; thirty reach every configured end.
    doubled = retry.backoff_s * 2.0 ** min(max(0, failures - 1), 30)
    return min(max(doubled, asked_s or 0.0), retry.backoff_max_s)


def state_under(past: Past, retry: RetrySettings) -> RolloutState:
    """The rollout's state as reports show it: skipped for good is ``omitted``, out of budget is ``exhausted``."""
    if past.state not in {RolloutState.FAILED, RolloutState.UNKNOWN}:
        return past.state
    if is_terminal(past, retry):
        return RolloutState.OMITTED if past.failure_class == FailureClass.SKIPPED else RolloutState.FAILED
    return past.state if has_budget(past, retry) else RolloutState.EXHAUSTED


def is_exhausted_by_interruption(past: Past, retry: RetrySettings) -> bool:
    """Whether the budget went to interruptions: without them there would be some left."""
    return state_under(past, retry) is RolloutState.EXHAUSTED and past.recorded < retry.max_attempts


def is_suspect(past: Past) -> bool:
    """Whether the rollout was in flight each time its collector died, often enough to suspect that it is the cause."""
    return past.recorded == 0 and past.interrupted >= SUSPICIOUS


def pending(history: History, retry: RetrySettings) -> array[int]:
    """The indices of all rollouts that may be dispatched, in inventory order."""
    return array(
        "i",
        (
            index
            for index, code in enumerate(history.codes)
            if code == _NEVER or (code in OPEN_CODES and may_dispatch(history.past(index), retry))
        ),
    )


def longest_first(indices: Sequence[int], history: History) -> array[int]:
    """``indices`` with those whose duration is known first, longest first; the others keep their order behind them."""

    def key(index: int) -> tuple[bool, float]:
        elapsed = history.elapsed[index]
        return (True, 0.0) if math.isnan(elapsed) else (False, -elapsed)

    return array("i", sorted(indices, key=key))

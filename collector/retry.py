"""What may be dispatched: pure decisions over the history of one rollout."""

from __future__ import annotations

from collector.history import OPEN_CODES, History, Past
from collector.outcomes import RolloutState
from collector.settings import RetrySettings

#: States in which a rollout has what it needs.
COMPLETED = frozenset({RolloutState.MEASURED, RolloutState.MASKED, RolloutState.UNSCORED, RolloutState.OMITTED})


def has_budget(past: Past, retry: RetrySettings) -> bool:
    """Whether another attempt is allowed. Interruptions share ``max_attempts`` unless they have an allowance of their own."""
    if retry.max_interruptions is None:
        return past.dispatched < retry.max_attempts
    return past.recorded < retry.max_attempts and past.interrupted <= retry.max_interruptions


def may_dispatch(past: Past, retry: RetrySettings) -> bool:
    """Whether the rollout is unfinished and may be tried again."""
    return past.state not in COMPLETED and not past.terminal and has_budget(past, retry)


def pending(history: History, retry: RetrySettings) -> list[int]:
    """The indices of all rollouts that may be dispatched, in inventory order."""
    return [
        index for index, code in enumerate(history.codes) if code in OPEN_CODES and may_dispatch(history.past(index), retry)
    ]


def state_under(past: Past, retry: RetrySettings) -> RolloutState:
    """The rollout's state as reports show it: out of budget is ``exhausted``, a terminal failure stays ``failed``."""
    open_states = {RolloutState.FAILED, RolloutState.UNKNOWN}
    if past.state in open_states and not past.terminal and not has_budget(past, retry):
        return RolloutState.EXHAUSTED
    return past.state


def is_exhausted_by_interruption(past: Past, retry: RetrySettings) -> bool:
    """Whether the budget went to interruptions: without them there would be some left."""
    return state_under(past, retry) is RolloutState.EXHAUSTED and past.recorded < retry.max_attempts

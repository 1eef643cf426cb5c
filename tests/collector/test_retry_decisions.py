"""Tables of histories and what may be done next."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.loop.budget import DispatchBudget
from collector.outcomes import RolloutState
from collector.settings import RetrySettings
from collector.state.codes import Past
from collector.state.retry import is_exhausted_by_interruption, may_dispatch, pause_s, state_under
from collector.stop import StopReason
from tests.collector.shards import asked, fill, rollout_ids, settings_for, states, write_dataset

FAILED, UNKNOWN = RolloutState.FAILED, RolloutState.UNKNOWN


def past(state: RolloutState, dispatched: int, recorded: int, *, terminal: bool = False, cls: str | None = None) -> Past:
    return Past(state=state, dispatched=dispatched, recorded=recorded, terminal=terminal, failure_class=cls)


@pytest.mark.parametrize(
    ("history", "retry", "allowed", "state"),
    [
        pytest.param(past(RolloutState.NEVER_DISPATCHED, 0, 0), {}, True, "never_dispatched", id="never-tried"),
        pytest.param(past(RolloutState.MEASURED, 1, 1), {}, False, "measured", id="measured"),
        pytest.param(past(RolloutState.MASKED, 1, 1), {}, False, "masked", id="masked"),
        pytest.param(past(RolloutState.UNSCORED, 1, 1), {}, False, "unscored", id="unscored"),
        pytest.param(past(FAILED, 1, 1), {}, True, "failed", id="failed-once"),
        pytest.param(past(FAILED, 3, 3), {}, False, "exhausted", id="failed-thrice"),
        pytest.param(past(FAILED, 1, 1, terminal=True), {}, False, "failed", id="terminal"),
        pytest.param(past(UNKNOWN, 3, 1), {}, False, "exhausted", id="failure-interrupted-interrupted-shared"),
        pytest.param(past(UNKNOWN, 3, 1), {"max_attempts": 4}, True, "unknown", id="cap-raised-to-four"),
        pytest.param(past(UNKNOWN, 3, 0), {"max_interruptions": 20}, True, "unknown", id="interruptions-apart"),
        pytest.param(past(UNKNOWN, 3, 0), {"max_interruptions": 2}, False, "exhausted", id="interruption-allowance-used"),
        pytest.param(past(UNKNOWN, 3, 0), {"max_interruptions": 3}, True, "unknown", id="interruption-allowance-just-enough"),
        pytest.param(past(FAILED, 5, 3), {"max_interruptions": 20}, False, "exhausted", id="failures-count-apart"),
        pytest.param(past(FAILED, 1, 1, terminal=True, cls="timeout_exceeded"), {}, False, "failed", id="terminal-timeout"),
        pytest.param(
            past(FAILED, 1, 1, terminal=True, cls="timeout_exceeded"),
            {"retry_terminal_timeouts": True},
            True,
            "failed",
            id="timeout-opted-in",
        ),
        pytest.param(
            past(FAILED, 3, 3, terminal=True, cls="timeout_exceeded"),
            {"retry_terminal_timeouts": True},
            False,
            "exhausted",
            id="opt-in-capped",
        ),
        pytest.param(
            past(FAILED, 1, 1, cls="skipped"), {"retry_terminal_timeouts": True}, False, "omitted", id="skipped-opted-in"
        ),
        pytest.param(past(FAILED, 1, 1, terminal=True, cls="skipped"), {}, False, "omitted", id="skipped-terminal"),
        pytest.param(past(FAILED, 1, 1, cls="skipped"), {}, True, "failed", id="skipped-not-stamped"),
    ],
)
def test_a_history_decides_what_may_happen(history: Past, retry: dict, allowed: bool, state: str) -> None:
    settings = RetrySettings(**retry)

    assert (may_dispatch(history, settings), state_under(history, settings)) == (allowed, state)


def test_exhaustion_by_interruption_is_told_apart_from_failures() -> None:
    assert is_exhausted_by_interruption(past(UNKNOWN, 3, 0), RetrySettings())
    assert not is_exhausted_by_interruption(past(FAILED, 3, 3), RetrySettings())


def test_a_dispatch_budget_of_zero_sends_nothing_and_uses_no_attempt(tmp_path: Path) -> None:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": n, "grade": 1} for n in range(50)])

    result = fill(settings_for(tmp_path, dispatch_budget_s=0))

    assert (result.stopped, sum(asked(tmp_path).values())) == (StopReason.DISPATCH_BUDGET, 0)
    assert states(settings_for(tmp_path)) == {"never_dispatched": 50}


def test_what_a_spent_budget_left_is_dispatched_by_the_next_session(tmp_path: Path) -> None:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": n, "grade": 1} for n in range(40)])
    fill(settings_for(tmp_path, dispatch_budget_s=0.1, drain_margin_s=0, agent={"delay_s": 0.02}, num_samples_in_parallel=1))
    first = sum(asked(tmp_path).values())

    fill(settings_for(tmp_path, agent={"delay_s": 0.02}))

    assert 0 < first < 40
    assert sum(asked(tmp_path).values()) == 40


def test_the_margin_is_the_third_quartile_of_this_sessions_durations() -> None:
    now = [0.0]
    budget = DispatchBudget(100, None, lambda: now[0])
    for duration in (1, 2, 3, 4, 50):
        budget.learn(duration)

    now[0] = 95.9
    before = budget.is_spent()
    now[0] = 96.1

    assert (before, budget.is_spent()) == (False, True)


def test_the_longest_known_task_goes_first_and_unknown_ones_keep_their_order(tmp_path: Path) -> None:
    write_dataset(
        tmp_path / "tasks.jsonl", [{"n": n, "grade": 1, "fail": 1 if n in {2, 3} else 0, "wait": n} for n in range(5)]
    )
    fill(settings_for(tmp_path, retry={"max_attempts": 1}, dispatch_budget_s=None, limit=None))
    log = tmp_path / "asked.log"
    log.unlink()

    fill(settings_for(tmp_path, retry={"max_attempts": 3}, dispatch_longest_first=True, num_samples_in_parallel=1))

    assert set(log.read_text().split()) == {"2-0", "3-0"}
    assert sorted(set(rollout_ids(tmp_path / "run" / "rollouts.jsonl"))) == [f"{n}-0" for n in range(5)]


@pytest.mark.parametrize(
    ("failures", "asked_s", "expected"),
    [(1, None, 1.0), (3, None, 4.0), (6, None, 30.0), (2, 7.0, 7.0), (1, 900.0, 30.0), (2000, None, 30.0)],
)
def test_a_pause_doubles_from_failure_to_failure_up_to_its_limit(failures: int, asked_s: float | None, expected: float) -> None:
    assert pause_s(RetrySettings(backoff_s=1.0, backoff_max_s=30.0), failures=failures, asked_s=asked_s) == expected

"""The table of expected outcomes, numbers 1 to 13: what a resume does with what an earlier session left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from collector.formats.events import Dispatched, SessionStarted, Success
from collector.state.history import History
from tests.outcomes.bench import Bench
from tests.support.model_server import ModelServer


def test_n01_a_killed_run_resumes_with_the_one_task_that_was_not_saved(bench: Bench, tmp_path: Path) -> None:
    """Three tasks, the collector is killed while the third is answered: two rows stay as they are, one request is sent."""
    pid_file = tmp_path / "collector.pid"
    with ModelServer(tmp_path, kill_pid_at=3, kill_pid_file=pid_file, delay=0.2) as server:
        bench.ask(server, "one", "two", "three")
        process = bench.start()
        pid_file.write_text(str(process.pid))
        process.communicate(timeout=50)
        before = bench.artifacts.rollouts.read_bytes()

        resumed = bench.run()

        assert (process.returncode, resumed.returncode, before.count(b"\n")) == (-9, 0, 2)
        assert bench.artifacts.rollouts.read_bytes().startswith(before)
        assert server.counts() == {"0": 1, "1": 1, "2": 2}
    last = bench.artifacts.rollouts.read_bytes().splitlines()[2]
    assert last.startswith(bench.artifacts.inventory.read_bytes().splitlines()[2][:-1])


@pytest.mark.parametrize(
    ("task", "state"),
    [
        pytest.param({"grade": 0.0}, "measured", id="n02-reward-zero"),
        pytest.param({"grade": 1, "mask": True}, "masked", id="n03-masked"),
        pytest.param({"grade": None}, "unscored", id="n04-unscored"),
    ],
)
def test_a_saved_completion_is_reused_whatever_its_score(bench: Bench, task: dict[str, Any], state: str) -> None:
    """A zero, a masked sample and a completion without a score are results: a resume neither asks nor changes them."""
    bench.tasks(task)
    bench.fill()
    before = bench.contents()

    coverage = bench.fill().coverage

    assert bench.asked() == {"0-0": 1}
    assert bench.artifacts.rollouts.read_bytes() == before["rollouts.jsonl"]
    assert {name.value: n for name, n in coverage.states.items() if n} == {state: 1}
    assert coverage.complete


def test_n03_a_masked_sample_is_counted_and_left_out_of_the_mean(bench: Bench) -> None:
    """One right answer and one masked zero: the mean is 1, and the coverage beside it says that one of two was measured."""
    bench.tasks({"grade": 1}, {"grade": 0, "mask": True})

    coverage = bench.fill().coverage

    assert (coverage.mean, coverage.measured, coverage.expected, coverage.states["masked"]) == (1.0, 1, 2, 1)


def test_n04_a_completion_without_a_score_says_so_and_has_no_reward(bench: Bench) -> None:
    """The row carries ``execute_only: true`` and an answer, and no ``reward`` at all, so that nobody can average it."""
    bench.tasks({"grade": None})

    coverage = bench.fill().coverage

    (row,) = bench.rows()
    assert (row["execute_only"], "reward" in row, row["response"]["object"]) == (True, False, "response")
    assert (coverage.mean, coverage.completed, coverage.states["never_dispatched"]) == (None, 1, 0)


@pytest.mark.parametrize("name", ["nan", "inf", "true", "null", "text", "beyond-float", "missing"])
def test_n05_what_is_no_finite_number_is_a_failure_and_never_a_score(bench: Bench, name: str) -> None:
    """A grader gives NaN, true, null or worse: the attempt failed. Null counts as unscored only where a verifier means it."""
    bench.tasks({"reward_name": name}, {"reward_name": "half"})

    coverage = bench.fill(verifier="python:tests.outcomes.graders:named", retry={"max_attempts": 1}).coverage

    assert (coverage.measured, coverage.states["exhausted"], coverage.mean) == (1, 1, 0.5)
    (failure,) = bench.failures()
    assert (failure["failure_kind"], "reward" in failure) == ("verifier_error", False)


def test_n06_a_terminal_failure_is_not_dispatched_again(bench: Bench) -> None:
    """The failure is stamped terminal: two attempts are left, and neither this session nor the next uses them."""
    bench.tasks({"acts": [{"failure_class": "permanent", "terminal": True}]})
    bench.fill()

    coverage = bench.fill().coverage

    assert bench.asked() == {"0-0": 1}
    assert (coverage.states["failed"], coverage.failed_terminally, coverage.is_final) == (1, 1, True)


TIMED_OUT = {"failure_class": "timeout_exceeded", "terminal": True}


@pytest.mark.parametrize(
    ("opted_in", "calls", "state"),
    [pytest.param(False, 1, "failed", id="off"), pytest.param(True, 3, "exhausted", id="on")],
)
def test_n07_a_terminal_timeout_is_retried_only_by_opt_in_and_up_to_the_cap(
    bench: Bench, opted_in: bool, calls: int, state: str
) -> None:
    """``timeout_exceeded`` stamped terminal: gated by default; with ``retry_terminal_timeouts`` it uses up its three attempts."""
    bench.tasks({"acts": [TIMED_OUT] * 5})
    bench.fill()
    retry = {"retry_terminal_timeouts": opted_in}

    bench.fill(retry=retry)

    assert bench.asked() == {"0-0": calls}
    assert bench.states(retry=retry) == {state: 1}


def test_n08_a_skipped_sample_is_gated_by_the_opt_in_even_without_a_stamp(bench: Bench) -> None:
    """``skipped`` and not stamped, with ``retry_terminal_timeouts``: the sample cannot run, so it counts as omitted."""
    bench.tasks({"acts": [{"failure_class": "skipped"}] * 5})

    bench.fill(retry={"retry_terminal_timeouts": True})

    assert bench.asked() == {"0-0": 1}
    assert bench.states(retry={"retry_terminal_timeouts": True}) == {"omitted": 1}


def test_n09_a_failure_and_two_interruptions_use_up_three_attempts_and_a_raised_cap_goes_on(bench: Bench) -> None:
    """Failed, killed, killed: exhausted at a cap of 3, by interruption, as the coverage says. At 4 the next attempt is number 3."""
    bench.tasks({"acts": [{}, "die", "die"]})
    codes = [bench.run().returncode for _ in range(2)]

    exhausted = bench.fill().coverage
    calls = bench.asked()
    raised = bench.fill(retry={"max_attempts": 4}).coverage

    assert (codes, calls) == ([-9, -9], {"0-0": 3})
    assert (exhausted.states["exhausted"], exhausted.exhausted_by_interruption, exhausted.is_final) == (1, 1, True)
    assert ([row["_ng_attempt_index"] for row in bench.rows()], raised.measured) == ([3], 1)


def test_n10_tasks_drained_by_the_budget_cost_nothing_and_all_run_on_resume(bench: Bench) -> None:
    """The budget ends with most of 50 tasks still queued: they leave no trace, and the resume asks each of them once."""
    bench.tasks(*[{} for _ in range(50)])
    bench.base["agent"] = {"type": "acted", "delay_s": 0.02}
    drained = bench.fill(dispatch_budget_s=0.15, drain_margin_s=0)
    left = drained.coverage.states["never_dispatched"]

    coverage = bench.fill(num_samples_in_parallel=16).coverage

    assert drained.stopped == "dispatch_budget"
    assert 0 < left < 50
    assert (set(bench.asked().values()), len(bench.asked()), coverage.measured) == ({1}, 50, 50)
    assert (coverage.attempts, bench.failures()) == (50, [])


def test_n11_a_budget_of_zero_sends_nothing_and_the_command_says_what_was_left(bench: Bench) -> None:
    """``dispatch_budget_s: 0``: no request, exit code 6, and the count of what was not run with the reason.

    The message counts the rollouts that were held back and does not name each one: the coverage file has the figure, and
    a list of a million ids would help nobody.
    """
    bench.tasks({}, {}, {})

    done = bench.run(dispatch_budget_s=0)

    assert done.returncode == 6
    assert "3 of 3 rollouts are not completed" in done.stderr
    assert "dispatch_budget" in done.stderr
    assert (bench.asked(), bench.rows(), bench.states()) == ({}, [], {"never_dispatched": 3})


def test_n12_a_budget_always_has_a_concurrency_to_work_with(bench: Bench) -> None:
    """``num_samples_in_parallel`` is never unset here: left out it is 16, and null is refused before anything starts.

    NeMo Gym lets it be unset, which means all at once, and must then refuse a budget; with a default there is nothing to refuse.
    """
    bench.tasks({})
    bench.base.pop("num_samples_in_parallel")

    assert bench.settings(dispatch_budget_s=5).num_samples_in_parallel == 16
    with pytest.raises(ValidationError, match="num_samples_in_parallel"):
        bench.settings(dispatch_budget_s=5, num_samples_in_parallel=None)
    refused = bench.run(dispatch_budget_s=5, num_samples_in_parallel=None)
    assert (refused.returncode, bench.artifacts.rollouts.exists()) == (2, False)
    assert "num_samples_in_parallel" in refused.stderr


@pytest.mark.parametrize("has_event", [pytest.param(True, id="with-its-event"), pytest.param(False, id="row-only")])
@pytest.mark.parametrize(
    ("second", "state"), [pytest.param("answer", "measured", id="answered"), pytest.param("die", "unknown", id="interrupted")]
)
def test_n13_a_late_result_of_an_older_attempt_decides_nothing(bench: Bench, second: str, state: str, has_event: bool) -> None:
    """Attempt 0 comes back after attempt 1 left: attempt 1 decides, even while nothing is known of it; the row is kept."""
    bench.tasks({"acts": ["die", second]}, {"grade": 1})
    bench.run()
    bench.run()
    bench.add_late_result(task=0, reward=0.0, has_event=has_event)
    kept = bench.artifacts.rollouts.read_bytes()

    before = bench.states()
    bench.fill(retry={"max_attempts": 5})

    assert before[state] >= 1
    coverage = bench.fill(retry={"max_attempts": 5}).coverage
    assert (coverage.mean, coverage.measured) == (1.0, 2)
    assert bench.artifacts.rollouts.read_bytes().startswith(kept)


def test_n13_a_result_of_a_collector_that_lost_the_shard_does_not_count_even_before_the_next_dispatch(bench: Bench) -> None:
    """A successor began and sent nothing yet; then its predecessor records a zero: the rollout stays unknown and is asked again."""
    bench.tasks({"acts": ["die"]})
    bench.run()
    bench.fill(dispatch_budget_s=0)
    bench.add_late_result(task=0, reward=0.0, has_event=True)

    before = bench.states()
    coverage = bench.fill().coverage

    assert before == {"unknown": 1}
    assert (coverage.mean, bench.asked()) == (1.0, {"0-0": 2})


def test_n13_the_greatest_dispatched_attempt_decides_whatever_order_outcomes_come_in() -> None:
    """Attempts 0 and 1 leave in one session, 1 scores 1, then 0 comes back with 0: both are recorded and the score is 1."""
    common = {"run_id": "r", "session": 0, "at": ""}
    place = {"rollout_id": "0-0", "length": 1, "checksum": 0}
    history = History(1)

    history.fold(
        [
            SessionStarted(**common, seq=0, reason="fresh", host="n1", pid=1),
            Dispatched(**common, seq=1, rollout_id="0-0", attempt_index=0),
            Dispatched(**common, seq=2, rollout_id="0-0", attempt_index=1),
            Success(**common, **place, seq=3, attempt_index=1, offset=0, reward=1.0),
            Success(**common, **place, seq=4, attempt_index=0, offset=1, reward=0.0),
        ],
        {"0-0": 0},
        "r",
    )

    assert (history.rewards[0], history.past(0).state, history.past(0).recorded) == (1.0, "measured", 2)

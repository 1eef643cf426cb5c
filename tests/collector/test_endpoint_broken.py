"""An endpoint that answers nobody ends the session early, and costs no task its last attempt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collector.artifacts import RunArtifacts
from collector.errors import UnavailableError
from collector.loop.breaker import CircuitBreaker
from collector.outcomes import Answer, Completed, Delivery, Failure, FailureClass, FailureKind, Stage, Verdict
from collector.shard.store import RolloutStore
from tests.collector.shards import asked, fill, settings_for, states, write_dataset

DONE = Completed(answer=Answer(response={}, text="x"), verdict=Verdict(reward=1.0))


def failure(status: int | None, **more: Any) -> Failure:
    return Failure(
        **{"failure_class": "x", "reason": f"HTTP {status}", "http_status": status, "delivery": Delivery.DELIVERED, **more}
    )


@pytest.mark.parametrize("count", [1, 7, 200])
@pytest.mark.parametrize("how", [{"status": 401}, {"status": 404}, {"status": None, "unsent": True}, {"status": 503}], ids=str)
def test_an_endpoint_that_never_answered_costs_no_task_a_second_attempt(
    tmp_path: Path, how: dict[str, Any], count: int
) -> None:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": n, "grade": 1, "fail": 99, **how} for n in range(count)])
    settings = settings_for(tmp_path, num_samples_in_parallel=4)

    with pytest.raises(UnavailableError, match=r"(attempts in a row failed alike|the last attempt failed): scripted"):
        fill(settings)

    assert set(asked(tmp_path).values()) == {1}
    assert sum(asked(tmp_path).values()) <= 4
    with RolloutStore.read(RunArtifacts(settings.output_jsonl_fpath)) as store:
        assert store.coverage(settings.retry).unfinished == count


def test_internal_errors_of_five_tasks_and_no_answer_are_the_endpoints(tmp_path: Path) -> None:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": n, "grade": 1, "fail": 99} for n in range(200)])

    with pytest.raises(UnavailableError):
        fill(settings_for(tmp_path, num_samples_in_parallel=4))

    assert set(asked(tmp_path).values()) == {1}
    assert len(asked(tmp_path)) <= 5 + 4


def test_a_few_poison_tasks_left_over_are_tried_to_their_end(tmp_path: Path) -> None:
    """Met on a resume: the last four tasks of a run crash the server each time, and the shard has to become final."""
    write_dataset(tmp_path / "tasks.jsonl", [{"n": n, "grade": 1, "fail": 99} for n in range(4)])

    result = fill(settings_for(tmp_path))

    assert (result.coverage.is_final, set(asked(tmp_path).values())) == (True, {3})


def test_quick_failures_do_not_stop_a_run_whose_slow_answers_are_still_coming(tmp_path: Path) -> None:
    tasks = [{"n": n, "grade": 1, "fail": 1} for n in range(12)] + [{"n": n, "grade": 1, "delay_s": 0.3} for n in range(12, 20)]
    write_dataset(tmp_path / "tasks.jsonl", tasks)

    result = fill(settings_for(tmp_path, num_samples_in_parallel=20))

    assert (result.coverage.measured, result.stopped) == (20, None)


def test_a_mended_endpoint_finds_every_task_with_budget(tmp_path: Path) -> None:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": n, "grade": 1, "fail": 99, "status": 502} for n in range(10)])
    settings = settings_for(tmp_path, num_samples_in_parallel=4)
    with pytest.raises(UnavailableError):
        fill(settings)

    with RolloutStore.read(RunArtifacts(settings.output_jsonl_fpath)) as store:
        left = [store.history.past(index).dispatched for index in range(10)]

    assert max(left) == 1


def test_an_endpoint_that_dies_in_the_middle_takes_nobodys_last_attempt(tmp_path: Path) -> None:
    tasks = [{"n": 0, "grade": 1}] + [{"n": n, "grade": 1, "fail": 99, "status": 502, "delay_s": 0.01} for n in range(1, 9)]
    write_dataset(tmp_path / "tasks.jsonl", tasks)
    settings = settings_for(tmp_path, num_samples_in_parallel=16)

    with pytest.raises(UnavailableError, match="16 attempts in a row failed alike"):
        fill(settings)

    assert states(settings) == {"measured": 1, "failed": 8}
    assert set(asked(tmp_path).values()) == {1, 2}


def test_failures_of_the_tasks_own_never_stop_a_run(tmp_path: Path) -> None:
    tasks = [{"n": n, "grade": 1, "fail": 1, "terminal": True, "status": 400} for n in range(100)]
    write_dataset(tmp_path / "tasks.jsonl", [*tasks, {"n": 100, "grade": 1}])

    result = fill(settings_for(tmp_path, num_samples_in_parallel=4))

    assert (result.coverage.failed_terminally, result.coverage.measured, result.stopped) == (100, 1, None)


def test_what_is_in_flight_when_the_run_is_stopped_may_still_finish(tmp_path: Path) -> None:
    """The second failure after the decision used to count as a second request to stop, which gives up everything in flight."""
    tasks = [{"n": n, "grade": 1, "fail": 9, "status": None, "delay_s": 0.1 + n / 1000} for n in range(30)]
    write_dataset(tmp_path / "tasks.jsonl", [*tasks, {"n": 30, "grade": 1, "delay_s": 0.6}])
    settings = settings_for(tmp_path, num_samples_in_parallel=31, retry={"max_attempts": 9})

    with pytest.raises(UnavailableError):
        fill(settings)

    assert "unknown" not in states(settings)


def test_one_task_may_use_any_number_of_attempts_that_is_configured(tmp_path: Path) -> None:
    """Beyond 64 attempts, and all alike in a row: it is still only this task."""
    write_dataset(tmp_path / "tasks.jsonl", [{"grade": 1, "fail": 9999, "status": None}])
    retry = {"max_attempts": 70, "backoff_s": 1e-9, "backoff_max_s": 1e-9}

    result = fill(settings_for(tmp_path, retry=retry, durability="flush"))

    assert (result.coverage.attempts, result.coverage.is_final) == (70, True)


def test_a_dying_server_that_fails_in_turns_is_one_story() -> None:
    breaker = CircuitBreaker(4)
    breaker.see(DONE, 0)

    for n in range(20):
        status = (502, 503, 500, None)[n % 4]
        breaker.see(failure(status, kind=FailureKind.TRANSPORT_PEER_DROP if status is None else None), n)

    assert breaker.verdict == "20 attempts in a row failed alike: HTTP None"


def test_everything_in_flight_may_fail_once_when_something_was_answered_before() -> None:
    breaker = CircuitBreaker(64)
    breaker.see(DONE, 0)

    for n in range(64):
        breaker.see(failure(502), n)

    assert breaker.verdict is None
    assert (breaker.must_wait(attempts_left=2), breaker.must_wait(attempts_left=1)) == (False, True)


def test_one_task_that_is_refused_while_others_are_answered_is_tried_to_its_end(tmp_path: Path) -> None:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": 0, "grade": 1, "fail": 9, "status": 503}, {"n": 1, "grade": 1}])

    result = fill(settings_for(tmp_path, num_samples_in_parallel=2))

    assert (asked(tmp_path), result.coverage.is_final) == ({"0-0": 3, "1-0": 1}, True)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(DONE, id="a-result"),
        pytest.param(failure(400, terminal=True), id="a-refused-task"),
        pytest.param(failure(500, stage=Stage.VERIFICATION), id="a-dead-judge"),
    ],
)
def test_any_answer_of_the_endpoint_ends_the_waiting(answer: Completed | Failure) -> None:
    breaker = CircuitBreaker(4)
    breaker.see(failure(401), 0)
    waited = breaker.must_wait(attempts_left=2)

    breaker.see(answer, 1)

    assert (waited, breaker.must_wait(attempts_left=1)) == (True, False)


def judge_failed() -> Failure:
    return failure(503, failure_class=FailureClass.JUDGE_FAILED, stage=Stage.VERIFICATION)


def test_a_judge_that_grades_nobody_gets_nobodys_last_attempt() -> None:
    breaker = CircuitBreaker(parallel=2)
    breaker.see(DONE, 99)
    for index in range(4):
        breaker.see(judge_failed(), index)
    assert not breaker.must_wait(1)

    breaker.see(judge_failed(), 4)

    assert breaker.is_suspicious
    assert breaker.must_wait(1)
    assert not breaker.must_wait(2)


def test_a_verdict_ends_the_waiting_for_the_judge() -> None:
    breaker = CircuitBreaker(parallel=2)
    for index in range(5):
        breaker.see(judge_failed(), index)

    breaker.see(DONE, 6)

    assert not breaker.is_suspicious
    assert not breaker.must_wait(1)


def test_one_answer_that_no_judge_can_grade_is_tried_to_its_end() -> None:
    breaker = CircuitBreaker(parallel=2)

    for _ in range(6):
        breaker.see(judge_failed(), 0)

    assert not breaker.must_wait(1)

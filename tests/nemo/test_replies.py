"""What a reply of ``POST /run`` becomes, among them the expected outcomes 4, 5, 26, 27 and 45 to 48."""

from __future__ import annotations

from typing import Any

import pytest

from tests.nemo.bench import NemoBench
from tests.support.nemo_stub import AGENT, ENVIRONMENT, NemoStub, response_of


def reply(*, without: tuple[str, ...] = (), **keys: Any) -> dict[str, Any]:
    return {"stub": {"mode": "reply", "reply": keys, "without": list(without)}}


def test_a_result_is_the_row_its_answer_and_its_grade_with_the_servers_stamp(bench: NemoBench, stub: NemoStub) -> None:
    bench.tasks({})

    states = bench.fill()

    (row,) = bench.results()
    assert states == {"measured": 1}
    assert stub.runs == [
        {
            "responses_create_params": {"input": [{"role": "user", "content": "2+3?"}]},
            "expected": 5,
            "n": 0,
            "agent_ref": {"type": "responses_api_agents", "name": AGENT},
            "_ng_task_index": 0,
            "_ng_rollout_index": 0,
        }
    ]
    assert row["response"] == response_of("5")
    assert (row["reward"], row["mask_sample"], row["extracted"], row["expected"]) == (1.0, False, "5", 5)
    assert (row["_ng_environment_server"], row["_ng_result_type"]) == (ENVIRONMENT, "legacy_agent")
    assert row["agent_ref"]["name"] == AGENT
    assert "_ng_attempt_index" not in row


def test_a_row_is_what_its_reply_makes_of_it_and_a_failure_keeps_the_task(bench: NemoBench) -> None:
    """Figures are made of a row's numbers: one more would be a figure that NeMo Gym does not have."""
    bench.tasks(reply(without=("expected",)), {"stub": {"mode": "500"}})

    bench.fill(retry={"max_attempts": 1})

    assert "expected" not in bench.results()[0]
    assert bench.failures()[0]["expected"] == 5


@pytest.mark.parametrize(
    ("wish", "state"),
    [
        pytest.param(reply(reward=0.0), "measured", id="zero"),
        pytest.param(reply(mask_sample=True, failure_kind="session_lost"), "masked", id="masked"),
        pytest.param(reply(mask_sample=True, without=("reward",)), "masked", id="masked-without-reward"),
        pytest.param(reply(execute_only=True, without=("reward",)), "unscored", id="n4-execute-only"),
        pytest.param(reply(_ng_no_persist=True), "omitted", id="not-to-be-recorded"),
        pytest.param(reply(_ng_failure_class="skipped", _ng_failure_terminal=True), "omitted", id="skipped"),
    ],
)
def test_a_completed_reply_is_final_and_never_asked_again(
    bench: NemoBench, stub: NemoStub, wish: dict[str, Any], state: str
) -> None:
    bench.tasks(wish)

    first = bench.fill()
    second = bench.fill()

    assert first == second == {state: 1}
    assert len(stub.runs) == 1


@pytest.mark.parametrize(
    "wish",
    [
        pytest.param(reply(reward=True), id="n5-true"),
        pytest.param(reply(reward=None), id="n5-null"),
        pytest.param({"stub": {"mode": "nan"}}, id="n5-nan"),
        pytest.param(reply(reward="1"), id="text"),
        pytest.param(reply(without=("reward",)), id="no-reward"),
        pytest.param(reply(without=("response",)), id="no-response"),
        pytest.param(reply(execute_only=True), id="a-reward-and-execute-only"),
        pytest.param(reply(mask_sample="yes"), id="mask-of-another-type"),
        pytest.param({"stub": {"mode": "text"}}, id="n47-no-json"),
    ],
)
def test_a_malformed_result_is_a_failure_and_never_a_score(bench: NemoBench, wish: dict[str, Any]) -> None:
    bench.tasks(wish, {})

    states = bench.fill(retry={"max_attempts": 1})

    (failure,) = bench.failures()
    assert states == {"measured": 1, "exhausted": 1}
    assert failure["_ng_failure_class"] == "agent_run_error"
    assert failure["_ng_failure_type"] in {"InvalidRolloutResult", "JSONDecodeError"}
    assert failure["_ng_failure_record"]["delivery"] == "delivered"
    assert not {"reward", "response"} & failure.keys()


@pytest.mark.parametrize(
    ("mode", "failure_class", "status", "delivery", "state"),
    [
        pytest.param("500", "agent_run_error", 500, "delivered", "exhausted", id="n45-500"),
        pytest.param("503", "agent_request_failed", 503, "delivered", "exhausted", id="n46-503"),
        pytest.param("429", "agent_request_failed", 429, "delivered", "exhausted", id="429"),
        pytest.param("422", "agent_run_error", 422, "delivered", "failed", id="422"),
        pytest.param("text", "agent_run_error", 200, "delivered", "exhausted", id="n47-no-json"),
        pytest.param("drop", "agent_request_failed", None, "possibly_delivered", "exhausted", id="n48-dropped"),
    ],
)
def test_every_request_of_a_failing_task_has_an_attempt_number_of_its_own(
    bench: NemoBench, stub: NemoStub, mode: str, failure_class: str, status: int | None, delivery: str, state: str
) -> None:
    bench.tasks({}, {"stub": {"mode": mode}})

    states = bench.fill(retry={"max_attempts": 3, "max_tries": 5})

    assert states == {"measured": 1, state: 1}
    assert stub.attempts_of(1) == ([0, 1, 2] if state == "exhausted" else [0])
    assert [row.get("_ng_attempt_index", 0) for row in bench.failures()] == stub.attempts_of(1)
    for row in bench.failures():
        assert (row["_ng_failure_class"], row["_ng_failure_http_status"]) == (failure_class, status)
        assert row["_ng_failure_record"]["delivery"] == delivery
        assert row["_ng_environment_server"] == ENVIRONMENT


def test_a_retried_result_says_which_attempt_it_is(bench: NemoBench) -> None:
    bench.tasks({"stub": {"mode": "500", "times": 2}})

    states = bench.fill()

    assert states == {"measured": 1}
    assert [row["_ng_attempt_index"] for row in bench.results()] == [2]
    assert bench.failures()[0]["_ng_failure_message"] == "HTTP 500: \"RuntimeError('the tool broke')\""


def test_a_failed_judge_keeps_the_answer_and_gets_no_reward(bench: NemoBench) -> None:
    stamped = {"_ng_failure_class": "judge_failed", "failure_kind": "judge_failed", "failure_reason": "judge is down"}
    bench.tasks(reply(reward=0.0, mask_sample=True, _ng_failure_judge_error="ConnectError", **stamped))

    states = bench.fill(retry={"max_attempts": 1})

    (row,) = bench.failures()
    assert states == {"exhausted": 1}
    assert row["response"] == response_of("5")
    assert (row["_ng_failure_class"], row["failure_reason"]) == ("judge_failed", "judge is down")
    assert "reward" not in row
    assert (row["_ng_failure_record"]["source"], row["_ng_failure_terminal"]) == ("environment", False)


def test_a_failure_that_is_no_judges_keeps_its_answer_as_evidence_only(bench: NemoBench) -> None:
    bench.tasks(reply(_ng_failure_class="timeout_exceeded", _ng_failure_terminal=True, _ng_failure_message="walltime", turns=7))

    states = bench.fill()

    (row,) = bench.failures()
    assert states == {"failed": 1}
    assert row["_ng_failure_response"] == response_of("5")
    assert (row["failure_reason"], row["turns"], row["_ng_failure_terminal"]) == ("walltime", 7, True)
    assert not {"response", "reward"} & row.keys()


def test_a_killed_environment_uses_up_an_attempt(bench: NemoBench, stub: NemoStub) -> None:
    bench.tasks(reply(_ng_failure_class="kill_shaped", _ng_no_persist=True))

    states = bench.fill()

    assert states == {"exhausted": 1}
    assert stub.attempts_of(0) == [0, 1, 2]
    assert {row["_ng_failure_class"] for row in bench.failures()} == {"kill_shaped"}


def test_a_deliverable_may_be_used_by_the_next_attempt_only_when_the_server_said_so(bench: NemoBench, stub: NemoStub) -> None:
    failed = {"_ng_failure_class": "judge_failed", "reuse_cached_deliverable": True}
    bench.tasks({"stub": {"mode": "reply", "reply": failed, "times": 1}})

    bench.fill()

    assert [body.get("reuse_cached_deliverable") for body in stub.runs] == [None, True]
    assert "reuse_cached_deliverable" not in bench.results()[0]


def test_no_cookie_of_one_rollout_is_sent_with_another(bench: NemoBench, stub: NemoStub) -> None:
    bench.tasks({}, {}, {})

    bench.fill()

    assert len(stub.headers) == 3
    assert all("Cookie" not in headers and "Authorization" not in headers for headers in stub.headers)


def test_connections_are_kept_and_concurrency_is_what_was_asked_for(bench: NemoBench, stub: NemoStub) -> None:
    bench.tasks(*({"stub": {"delay": 0.3}} for _ in range(60)))

    states = bench.fill(num_samples_in_parallel=20)

    assert states == {"measured": 60}
    assert stub.most == 20
    # One for the head server, and one for each request in flight.
    assert stub.connections <= 21 + 2


def test_servers_that_went_away_are_asked_again_without_a_new_attempt(bench: NemoBench, stub: NemoStub) -> None:
    """Not a byte left: the only case in which a request is repeated under its number, and it is bounded."""
    bench.tasks({})
    environment = stub.config[ENVIRONMENT]["environment_servers"]["legacy_agent"]
    environment["port"] = 1

    states = bench.fill(retry={"max_attempts": 1, "max_tries": 3})

    (row,) = bench.failures()
    assert states == {"exhausted": 1}
    assert row["_ng_failure_record"]["delivery"] == "not_sent"
    assert row["failure_reason"].endswith("after 3 tries")


def test_a_reply_that_takes_too_long_ends_its_attempt(bench: NemoBench) -> None:
    bench.tasks({"stub": {"delay": 5}})

    states = bench.fill(retry={"max_attempts": 1}, timeouts={"request_s": 0.2})

    (row,) = bench.failures()
    assert states == {"exhausted": 1}
    assert (row["failure_kind"], row["_ng_failure_record"]["delivery"]) == ("transport_timeout", "possibly_delivered")

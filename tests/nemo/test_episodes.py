"""Materialized tasks: their route, their request, their result or failure, among them the expected outcomes 26 and 27."""

from __future__ import annotations

from typing import Any

import pytest

from collector.errors import DatasetError
from tests.nemo.bench import NemoBench
from tests.support.nemo_stub import ENVIRONMENT, NemoStub, response_of

ROUTES = {"environment_routing_mode": "taskset", "environment_server_routes": {"math": ENVIRONMENT}}
TASK = {"taskset": "math", "task_id": "m-17"}


def task(wish: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {"task_id": TASK, "task_input": {"prompt": "2+3?", "stub": wish or {}}, **fields}


def failure(**keys: Any) -> dict[str, Any]:
    return {"reply": {"failure": {"failure_reason": "sandbox vanished", "terminal": False, **keys}}}


def test_an_episode_is_asked_by_its_ids_and_its_result_is_flattened_into_the_row(bench: NemoBench, stub: NemoStub) -> None:
    bench.write(task())

    states = bench.fill(agent=ROUTES)

    assert states == {"measured": 1}
    assert stub.runs == [
        {
            "episode_id": {"rollout_id": "0-0", "attempt": 0},
            "task": {"task_id": TASK, "task_input": {"prompt": "2+3?", "stub": {}}},
        }
    ]
    (row,) = bench.results()
    assert (row["response"], row["reward"], row["turns"]) == (response_of("5"), 1.0, 2)
    assert (row["_ng_task_id"], row["_ng_environment_server"]) == (TASK, ENVIRONMENT)
    assert "result" not in row


def test_a_retried_episode_carries_its_attempt_in_its_id(bench: NemoBench, stub: NemoStub) -> None:
    bench.write(task({"mode": "500", "times": 1}))

    bench.fill(agent=ROUTES, num_repeats=1)

    assert [body["episode_id"] for body in stub.runs] == [
        {"rollout_id": "0-0", "attempt": 0},
        {"rollout_id": "0-0", "attempt": 1},
    ]


def test_a_result_without_a_reward_is_unscored(bench: NemoBench) -> None:
    bench.write(task({"reply": {"result": {"transcript": "hello"}}}))

    states = bench.fill(agent=ROUTES)

    assert states == {"unscored": 1}
    assert bench.results()[0]["transcript"] == "hello"
    assert "response" not in bench.results()[0]


@pytest.mark.parametrize(
    ("keys", "failure_class", "state"),
    [
        pytest.param({}, "environment_server_failed", "exhausted", id="n26-without-a-kind"),
        pytest.param({"failure_kind": "session_lost", "stage": "agent"}, "session_lost", "exhausted", id="with-a-kind"),
        pytest.param({"terminal": True}, "environment_server_failed", "failed", id="terminal"),
    ],
)
def test_a_failure_of_the_environment_stays_one(bench: NemoBench, keys: dict[str, Any], failure_class: str, state: str) -> None:
    bench.write(task(failure(**keys)))

    states = bench.fill(agent=ROUTES)

    row = bench.failures()[0]
    record = row["_ng_failure_record"]
    assert states == {state: 1}
    assert row["_ng_failure_class"] == failure_class
    assert (record["source"], record["delivery"], record["http_status"]) == ("environment", "delivered", 200)
    assert record["failure"]["failure_reason"] == "sandbox vanished"
    assert row["_ng_task_id"] == TASK
    assert "reward" not in row


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        pytest.param({"failure": {"message": "gone", "terminal": False}}, "message", id="n27-the-old-name"),
        pytest.param({"failure": {"failure_reason": "x", "terminal": False, "colour": 1}}, "colour", id="unknown-key"),
        pytest.param({"failure": {"failure_reason": "x"}}, "terminal", id="no-terminal"),
        pytest.param({"failure": {"failure_reason": "x", "terminal": False, "stage": "moon"}}, "stage", id="unknown-stage"),
        pytest.param({"result": {"reward": 1.0, "_ng_run_id": "x"}}, "_ng_run_id", id="a-collector's-key"),
        pytest.param({"result": {"reward": 1.0, "ng_perf": {}}}, "ng_perf", id="a-key-of-observability"),
        pytest.param(
            {"result": {"reward": float(1)}, "failure": {"failure_reason": "x", "terminal": False}}, "one of", id="both"
        ),
        pytest.param({"episode_id": {"rollout_id": "9-9", "attempt": 0}, "result": {}}, "9-9", id="another-episode"),
        pytest.param({"result": {"reward": None}}, "reward", id="null-reward"),
    ],
)
def test_a_reply_that_breaks_the_contract_is_a_failure_of_the_reply(
    bench: NemoBench, reply: dict[str, Any], words: str
) -> None:
    bench.write(task({"reply": reply}))

    states = bench.fill(agent=ROUTES, retry={"max_attempts": 1})

    (row,) = bench.failures()
    assert states == {"exhausted": 1}
    assert (row["_ng_failure_class"], row["_ng_failure_type"]) == ("agent_run_error", "InvalidRolloutResult")
    assert words in row["failure_reason"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"responses_create_params": {"temperature": 0}}, "responses_create_params", id="parameters"),
        pytest.param({"num_repeats_add_seed": True}, "num_repeats_add_seed", id="seeds"),
    ],
)
def test_what_a_run_adds_to_flat_rows_is_refused_for_tasks(bench: NemoBench, changes: dict[str, Any], words: str) -> None:
    bench.write(task())

    with pytest.raises(DatasetError, match=words):
        bench.prepare(agent=ROUTES, **changes)


def test_taskset_mode_takes_no_flat_row(bench: NemoBench) -> None:
    bench.tasks({})

    with pytest.raises(DatasetError, match="taskset takes rows with task_id and task_input only"):
        bench.prepare(agent=ROUTES)


def test_agent_mode_takes_both_kinds_of_rows(bench: NemoBench, stub: NemoStub) -> None:
    flat = {"responses_create_params": {"input": "?"}, "agent_ref": {"name": "math_simple_agent"}}
    bench.write(task(), flat)

    states = bench.fill(agent={"environment_server_routes": {"math": ENVIRONMENT}})

    assert states == {"measured": 2}
    assert ["episode_id" in body for body in stub.runs] == [True, False]

"""The deterministic model server: what a client meets in each mode."""

from __future__ import annotations

import http.client
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.model_server import ModelServer

CHAT = "/v1/chat/completions"


def post(server: ModelServer, prompt: str, path: str = CHAT, timeout_s: float = 5, **extra: Any) -> tuple[int, Any]:
    """The status and the decoded body of one request."""
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout_s)
    key = "messages" if path == CHAT else "input"
    body = {"model": "m", key: [{"role": "user", "content": prompt}]} | extra
    try:
        client.request("POST", path, json.dumps(body))
        reply = client.getresponse()
        return reply.status, json.loads(reply.read())
    finally:
        client.close()


def get(server: ModelServer, path: str) -> tuple[int, Any]:
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    try:
        client.request("GET", path)
        reply = client.getresponse()
        return reply.status, json.loads(reply.read())
    finally:
        client.close()


def test_chat_answers_what_the_mark_says_and_reports_its_usage(model_server: ModelServer) -> None:
    status, reply = post(model_server, "two and two? [[answer: four of them]]")

    assert status == 200
    assert reply["choices"][0]["message"]["content"] == "four of them"
    assert reply["choices"][0]["finish_reason"] == "stop"
    assert reply["usage"]["completion_tokens"] == 3
    assert reply["usage"]["total_tokens"] == reply["usage"]["prompt_tokens"] + 3


def test_responses_answers_with_reasoning_and_a_message(model_server: ModelServer) -> None:
    status, reply = post(model_server, "[[answer: B]] [[think: A is wrong]]", "/v1/responses")

    assert status == 200
    assert [item["type"] for item in reply["output"]] == ["reasoning", "message"]
    assert reply["output"][1]["content"][0]["text"] == "B"
    assert reply["status"] == "completed"


def test_the_same_prompt_gets_the_same_answer_and_another_prompt_another(model_server: ModelServer) -> None:
    answers = [post(model_server, prompt)[1]["choices"][0]["message"]["content"] for prompt in ("one", "one", "two")]

    assert answers[0] == answers[1]
    assert answers[0] != answers[2]


@pytest.mark.parametrize("path", [pytest.param(CHAT, id="chat"), pytest.param("/v1/responses", id="responses")])
def test_a_token_limit_below_the_answer_cuts_it(model_server: ModelServer, path: str) -> None:
    _, reply = post(model_server, "[[answer: a b c d]]", path, **{"max_tokens" if path == CHAT else "max_output_tokens": 2})

    if path == CHAT:
        assert (reply["choices"][0]["message"]["content"], reply["choices"][0]["finish_reason"]) == ("a b", "length")
    else:
        assert (reply["status"], reply["incomplete_details"]["reason"]) == ("incomplete", "max_output_tokens")


@pytest.mark.parametrize(
    ("mode", "code"),
    [
        pytest.param("400", "context_length_exceeded", id="prompt-too-long"),
        pytest.param("401", "invalid_api_key", id="wrong-key"),
        pytest.param("404", "model_not_found", id="wrong-model"),
        pytest.param("429", "rate_limit_exceeded", id="rate-limit"),
        pytest.param("500", "internal_error", id="crash-in-the-handler"),
        pytest.param("503", "unavailable", id="overload"),
    ],
)
def test_an_error_mode_answers_with_its_status_and_code(model_server: ModelServer, mode: str, code: str) -> None:
    status, reply = post(model_server, f"[[mode: {mode}]]")

    assert status == int(mode)
    assert reply["error"]["code"] == code


def test_a_rate_limit_says_when_to_come_back(tmp_path: Path) -> None:
    with ModelServer(tmp_path, mode="429", retry_after="7") as server:
        client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
        client.request("POST", CHAT, json.dumps({"messages": "hi"}))
        headers = client.getresponse().headers
        client.close()

    assert headers["Retry-After"] == "7"


def test_a_mode_with_a_count_ends_after_that_many_requests_of_its_task_only(model_server: ModelServer) -> None:
    first = [post(model_server, "[[task: a]] [[mode: 500 x2]]")[0] for _ in range(3)]
    other = post(model_server, "[[task: b]]")[0]

    assert first == [500, 500, 200]
    assert other == 200


def test_silence_holds_a_completion_while_health_is_fine(model_server: ModelServer) -> None:
    with pytest.raises(TimeoutError):
        post(model_server, "[[mode: silence]]", timeout_s=0.3)

    assert get(model_server, "/health")[0] == 200


@pytest.mark.parametrize(
    ("mode", "error"),
    [
        pytest.param("drop", http.client.IncompleteRead, id="in-the-middle-of-the-body"),
        pytest.param("drop-before", http.client.RemoteDisconnected, id="before-the-first-byte"),
        pytest.param("reset", ConnectionResetError, id="reset"),
    ],
)
def test_a_dropping_server_ends_the_connection(model_server: ModelServer, mode: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        post(model_server, f"[[mode: {mode}]]")


def test_close_answers_and_then_ends_a_connection_said_to_be_kept(model_server: ModelServer) -> None:
    client = http.client.HTTPConnection("127.0.0.1", model_server.port, timeout=5)
    client.request("POST", CHAT, json.dumps({"messages": "[[mode: close]]"}))
    first = client.getresponse()
    first.read()
    sock = client.sock
    assert sock is not None
    rest = sock.recv(1)
    client.close()

    assert first.status == 200
    assert first.headers["Connection"] is None
    assert rest == b""


def test_a_drip_takes_its_time_and_arrives_whole(tmp_path: Path) -> None:
    with ModelServer(tmp_path, mode="drip", drip_interval=0.05) as server:
        began = time.monotonic()
        status, reply = post(server, "[[answer: slow]]")

    assert (status, reply["choices"][0]["message"]["content"]) == (200, "slow")
    assert time.monotonic() - began >= 0.4


def test_a_malformed_body_is_no_json(model_server: ModelServer) -> None:
    with pytest.raises(json.JSONDecodeError):
        post(model_server, "[[mode: malformed]]")


def test_the_length_modes_stop_with_and_without_text(model_server: ModelServer) -> None:
    cut = post(model_server, "[[answer: half]] [[mode: length]]")[1]["choices"][0]
    empty = post(model_server, "[[answer: half]] [[mode: length-empty]]")[1]["choices"][0]

    assert (cut["finish_reason"], cut["message"]["content"]) == ("length", "half")
    assert (empty["finish_reason"], empty["message"]["content"]) == ("length", "")


def test_a_delay_holds_one_answer_back(model_server: ModelServer) -> None:
    began = time.monotonic()
    post(model_server, "[[delay: 0.3]]")

    assert time.monotonic() - began >= 0.3


def test_models_can_name_another_model_than_the_one_that_answers(tmp_path: Path) -> None:
    with ModelServer(tmp_path, model="right", listed_model="wrong") as server:
        listed = get(server, "/v1/models")[1]

    assert [entry["id"] for entry in listed["data"]] == ["wrong"]


def test_a_server_that_loads_says_503_until_it_is_ready(tmp_path: Path) -> None:
    with ModelServer(tmp_path, ready_after=0.5) as server:
        early = get(server, "/health")[0]
        time.sleep(0.6)
        late = get(server, "/health")[0]

    assert (early, late) == (503, 200)


def test_a_server_with_a_key_refuses_requests_without_it(tmp_path: Path) -> None:
    with ModelServer(tmp_path, api_key="k") as server:
        assert post(server, "hi")[0] == 401


def test_the_mode_of_a_living_server_can_be_changed(model_server: ModelServer) -> None:
    before = post(model_server, "hi")[0]
    model_server.set_mode("503")
    after = post(model_server, "hi")[0]

    assert (before, after) == (200, 503)


def test_one_connection_carries_many_requests(model_server: ModelServer) -> None:
    client = http.client.HTTPConnection("127.0.0.1", model_server.port, timeout=5)
    statuses: list[int] = []
    for _ in range(50):
        client.request("POST", CHAT, json.dumps({"messages": "hi"}))
        reply = client.getresponse()
        reply.read()
        statuses.append(reply.status)
    client.close()

    assert statuses == [200] * 50
    assert model_server.stats()["requests"] == 50

"""Both agents and the probe against the deterministic model server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import uvloop

from collector.agents.base import AGENTS
from collector.agents.probe import ProbeResult, probe
from collector.errors import ConfigError
from collector.outcomes import Answer, Delivery, Failure, FailureClass, FailureKind
from collector.preparation.prepare import make_agent
from collector.settings import RetrySettings, RunSettings, Timeouts
from tests.support.model_server import ModelServer

KINDS = ["openai_chat", "openai_responses"]


def run_settings(url: str | None, kind: str, **more: Any) -> RunSettings:
    values: dict[str, Any] = {
        "input_jsonl_fpath": Path("in.jsonl"),
        "output_jsonl_fpath": Path("out.jsonl"),
        "policy_model_name": "test-model",
        "policy_base_url": url,
        "agent": {"type": kind},
        "verifier": {"type": "number"},
        "timeouts": Timeouts(connect_s=2, request_s=5, stall_s=1),
        "retry": RetrySettings(max_tries=3, backoff_s=0.01),
    }
    return RunSettings(**values | more)


def ask(server: ModelServer, kind: str, prompt: str, **more: Any) -> Answer | Failure:
    async def scenario() -> Answer | Failure:
        async with make_agent(run_settings(server.base_url, kind, **more)) as agent:
            return await agent.answer({"responses_create_params": {"input": prompt}})

    return uvloop.run(scenario())


def test_every_built_in_agent_is_tried_here() -> None:
    # The servers of a NeMo Gym and commands have tests of their own.
    assert sorted(AGENTS.builtin.keys() - {"command", "nemo_gym"}) == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_comes_with_its_reasoning_and_its_usage(model_server: ModelServer, kind: str) -> None:
    answer = ask(model_server, kind, "[[task: t]] [[answer: 5\u2028\ud800]] [[think: hm]]".replace("\ud800", "é"))

    assert isinstance(answer, Answer)
    assert answer.text == "5\u2028é"
    assert [item["type"] for item in answer.response["output"]] == ["reasoning", "message"]
    assert answer.response["usage"]["output_tokens"] == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("mode", "expected", "requests"),
    [
        pytest.param("500", (FailureClass.AGENT_RUN_ERROR, FailureKind.AGENT_RUN_ERROR, False, 500), 1, id="500"),
        pytest.param("503", (FailureClass.AGENT_REQUEST_FAILED, FailureKind.AGENT_REQUEST_FAILED, False, 503), 3, id="503"),
        pytest.param("400", (FailureClass.AGENT_RUN_ERROR, FailureKind.AGENT_RUN_ERROR, True, 400), 1, id="overflow"),
        pytest.param("401", (FailureClass.AGENT_RUN_ERROR, FailureKind.AGENT_RUN_ERROR, False, 401), 1, id="401"),
        pytest.param("malformed", (FailureClass.AGENT_RUN_ERROR, FailureKind.AGENT_RUN_ERROR, False, 200), 1, id="malformed"),
        pytest.param("drop", (FailureClass.AGENT_REQUEST_FAILED, FailureKind.TRANSPORT_PEER_DROP, False, None), 1, id="drop"),
        pytest.param("reset", (FailureClass.AGENT_REQUEST_FAILED, FailureKind.TRANSPORT_PEER_DROP, False, None), 1, id="reset"),
        pytest.param(
            "silence", (FailureClass.AGENT_REQUEST_FAILED, FailureKind.TRANSPORT_TIMEOUT, False, None), 1, id="silence"
        ),
    ],
)
def test_each_fault_has_its_class_kind_and_number_of_requests(
    model_server: ModelServer, kind: str, mode: str, expected: tuple[Any, ...], requests: int
) -> None:
    failure = ask(model_server, kind, f"[[task: t]] [[mode: {mode}]]")

    assert isinstance(failure, Failure)
    assert (failure.failure_class, failure.kind, failure.terminal, failure.http_status) == expected
    assert failure.delivery is (Delivery.POSSIBLY_DELIVERED if failure.http_status is None else Delivery.DELIVERED)
    assert model_server.counts() == {"t": requests}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["length", "length-empty"])
def test_a_cut_answer_is_marked_as_truncated(model_server: ModelServer, kind: str, mode: str) -> None:
    answer = ask(model_server, kind, f"[[answer: 5]] [[mode: {mode}]]")

    assert isinstance(answer, Answer)
    assert answer.truncated
    assert bool(answer.text) is (mode == "length")


def ready(url: str | None, kind: str = "openai_chat", **more: Any) -> ProbeResult:
    return uvloop.run(probe(run_settings(url, kind, **more), timeouts=Timeouts(connect_s=2, request_s=2, stall_s=1)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_probe_completes_once_and_names_the_models(model_server: ModelServer, kind: str) -> None:
    result = ready(model_server.base_url, kind)

    assert result == ProbeResult(ok=True, model_ids=("test-model",))
    assert len(model_server.requests()) == 1


def test_a_probe_tells_another_model_from_a_server_that_is_not_ready(model_server: ModelServer) -> None:
    wrong = ready(model_server.base_url, policy_model_name="other")
    model_server.set_mode("silence")
    hanging = ready(model_server.base_url)
    model_server.kill()
    dead = ready(model_server.base_url)

    assert wrong.wrong_model
    assert wrong.reason == "it serves test-model and not other"
    assert not hanging.ok
    assert "waiting for the first byte" in hanging.reason
    assert not dead.ok
    assert "connecting" in dead.reason


@pytest.mark.parametrize(
    ("more", "named"),
    [
        pytest.param({"policy_base_url": None}, "policy_base_url", id="no-url"),
        pytest.param({"policy_base_url": "ftp://x/v1"}, "policy_base_url", id="ftp"),
        pytest.param({"agent": {"type": "openai_chat", "api_key_env": "NOT_SET_HERE"}}, "NOT_SET_HERE", id="unset-variable"),
        pytest.param({"policy_api_key": "sk-1\nX-Evil: 1"}, "control character", id="line-break-in-key"),
    ],
)
def test_an_endpoint_that_cannot_be_used_is_refused_when_the_agent_starts(more: dict[str, Any], named: str) -> None:
    async def scenario() -> None:
        async with make_agent(run_settings("http://127.0.0.1:1/v1", "openai_chat", **more)):
            pass

    with pytest.raises(ConfigError) as refusal:
        uvloop.run(scenario())

    assert named in str(refusal.value)
    assert "sk-1" not in str(refusal.value)

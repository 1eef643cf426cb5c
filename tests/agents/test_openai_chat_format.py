"""How a row becomes a chat request and a chat reply becomes a Responses object."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collector.agents.chat_reply import answer_of
from collector.agents.openai_chat import OpenAIChatAgent, OpenAIChatSettings
from collector.settings import RunSettings


def agent(**settings: Any) -> OpenAIChatAgent:
    run = RunSettings(
        input_jsonl_fpath=Path("in.jsonl"),
        output_jsonl_fpath=Path("out.jsonl"),
        policy_model_name=settings.pop("model", "m"),
        verifier={"type": "number"},
    )
    return OpenAIChatAgent(OpenAIChatSettings(type="openai_chat", **settings), run)


def body(params: dict[str, Any], **settings: Any) -> dict[str, Any]:
    return agent(**settings).body_of({"responses_create_params": params})


def test_a_plain_prompt_is_one_user_message_with_its_sampling() -> None:
    params = {"input": "2+3?", "temperature": 0.5, "max_output_tokens": 9, "top_p": None, "stream": False, "store": False}

    assert body(params) == {
        "model": "m",
        "messages": [{"role": "user", "content": "2+3?"}],
        "temperature": 0.5,
        "max_tokens": 9,
    }


def test_the_name_of_the_token_limit_can_be_chosen() -> None:
    assert body({"input": "x", "max_output_tokens": 9}, max_tokens_key="max_completion_tokens")["max_completion_tokens"] == 9


def test_a_tool_dialogue_becomes_assistant_calls_and_tool_messages() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 2}'}
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "2+3?"}]},
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "adding"}]},
        call,
        {**call, "call_id": "c2"},
        {"type": "function_call_output", "call_id": "c1", "output": "5"},
    ]
    function = {"name": "add", "arguments": '{"a": 2}'}

    assert body({"input": items, "instructions": "be brief"})["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "2+3?"},
        {
            "role": "assistant",
            "content": "adding",
            "tool_calls": [{"id": name, "type": "function", "function": function} for name in ("c1", "c2")],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "5"},
    ]


def test_tools_effort_and_a_json_schema_get_their_chat_form() -> None:
    sent = body(
        {
            "input": "x",
            "tools": [{"type": "function", "name": "add", "parameters": {"type": "object"}, "description": None}],
            "tool_choice": {"type": "function", "name": "add"},
            "reasoning": {"effort": "low", "summary": None},
            "text": {"format": {"type": "json_schema", "name": "s", "schema": {"type": "object"}}},
        }
    )

    assert sent["tools"] == [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    assert sent["tool_choice"] == {"type": "function", "function": {"name": "add"}}
    assert sent["reasoning_effort"] == "low"
    assert sent["response_format"] == {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}


def test_extra_body_of_the_row_is_merged_and_that_of_the_run_wins() -> None:
    params = {"input": "x", "metadata": {"extra_body": '{"seed": 3, "top_k": 5}', "note": "kept out"}}

    sent = body(params, extra_body={"top_k": 1})

    assert (sent["seed"], sent["top_k"]) == (3, 1)
    assert "metadata" not in sent


@pytest.mark.parametrize(
    ("params", "named"),
    [
        pytest.param({"input": "x", "previous_response_id": "r"}, "previous_response_id", id="unsupported"),
        pytest.param({"input": "x", "temperatur": 1}, "did you mean 'temperature'", id="misspelt"),
        pytest.param({"input": "x", "top_k": 3}, "agent.extra_body", id="server-parameter"),
        pytest.param({"input": "x", "stream": True}, "responses_create_params.stream", id="stream"),
        pytest.param({"input": "x", "stream": 0}, "responses_create_params.stream", id="zero-is-not-false"),
        pytest.param({"input": "x", "temperature": True}, "must be a number", id="bool-temperature"),
        pytest.param({"input": "x", "temperature": "0"}, "must be a number", id="text-temperature"),
        pytest.param({"input": "x", "max_output_tokens": -3}, "must be at least 1, not -3", id="negative-tokens"),
        pytest.param({"input": ""}, "responses_create_params.input", id="empty-input"),
        pytest.param({"temperature": 1}, "responses_create_params.input", id="no-input"),
        pytest.param({"input": [{"role": "robot", "content": "x"}]}, "input[0].role", id="role"),
        pytest.param({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input_file", id="part"),
        pytest.param({"input": [{"type": "computer_call"}]}, "computer_call", id="item"),
        pytest.param({"input": "x", "tools": [{"type": "web_search"}]}, "tools", id="tool"),
        pytest.param({"input": "x", "metadata": {"extra_body": "{"}}, "metadata.extra_body", id="broken-extra-body"),
        pytest.param({"input": "x", "metadata": {"extra_body": '{"n": 4}'}}, "'n'", id="many-choices"),
    ],
)
def test_a_row_that_cannot_be_sent_is_refused_before_dispatch_by_its_key(params: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=r".") as refusal:
        agent().check_row({"responses_create_params": params})

    assert named in str(refusal.value)


def test_a_run_without_a_model_takes_the_rows_and_refuses_a_row_without_one() -> None:
    assert body({"input": "x", "model": "row-model"}, model=None)["model"] == "row-model"
    with pytest.raises(ValueError, match="policy_model_name"):
        body({"input": "x"}, model=None)


def chat(message: dict[str, Any], finish_reason: str | None = "stop", **more: Any) -> dict[str, Any]:
    return {
        "id": "c",
        "created": 5,
        "model": "served",
        "choices": [{"message": message, "finish_reason": finish_reason}],
    } | more


def test_a_reply_becomes_a_responses_object_with_only_what_was_reported() -> None:
    reply = chat(
        {"content": "5", "reasoning_content": "2 and 3"},
        usage={"prompt_tokens": 7, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 4}},
    )

    answer = answer_of(reply, {}, model="asked", now=1)

    assert answer.text == "5"
    assert not answer.truncated
    assert answer.response["output"] == [
        {"id": "rs_c", "type": "reasoning", "summary": [{"type": "summary_text", "text": "2 and 3"}]},
        {
            "id": "msg_c",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "5", "annotations": []}],
        },
    ]
    assert answer.response["usage"] == {"input_tokens": 7, "output_tokens": 1, "input_tokens_details": {"cached_tokens": 4}}
    assert (answer.response["model"], answer.response["created_at"], answer.response["status"]) == ("served", 5, "completed")


def test_no_usage_is_invented() -> None:
    assert "usage" not in answer_of(chat({"content": "5"}), {}, model="m", now=1).response


@pytest.mark.parametrize("content", [pytest.param("The ans", id="with-text"), pytest.param(None, id="without-text")])
def test_an_answer_cut_at_the_token_limit_says_so(content: str | None) -> None:
    answer = answer_of(chat({"content": content}, "length"), {}, model="m", now=1)

    assert answer.truncated
    assert answer.text == (content or "")
    assert answer.response["status"] == "incomplete"
    assert answer.response["incomplete_details"] == {"reason": "max_output_tokens"}


def test_tool_calls_become_function_call_items() -> None:
    call = {"id": "c1", "function": {"name": "add", "arguments": "{}"}}

    output = answer_of(chat({"content": None, "tool_calls": [call]}, "tool_calls"), {}, model="m", now=1).response["output"]

    assert output == [
        {"id": "fc_c_0", "type": "function_call", "status": "completed", "call_id": "c1", "name": "add", "arguments": "{}"}
    ]


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param([], id="list"),
        pytest.param({"choices": []}, id="no-choice"),
        pytest.param({"choices": [{"text": "old"}]}, id="no-message"),
        pytest.param({"choices": [{"message": {"content": 5}}]}, id="number"),
        pytest.param(chat({"content": "x"}, "abort"), id="aborted"),
        pytest.param(chat({"tool_calls": [{"id": "x"}]}), id="call-without-function"),
    ],
)
def test_a_reply_without_an_answer_is_refused(reply: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        answer_of(reply, {}, model="m", now=1)

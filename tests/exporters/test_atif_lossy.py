"""The lossy profile: what a response holds is kept in its place, what has none is named, and nothing is invented."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.atif.conversion import PROFILES
from exporters.atif.documents import Document
from exporters.atif.lossy import LossyProfile
from exporters.atif.profile import Choice, Context, choose
from exporters.strict_rows import RowError

CONTEXT = Context(session_id="s", agent_name="openai_chat", agent_version="1", exporter_version="0")
CALL = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1, "b": null}'}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "3"}
ANSWER = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "three"}]}


def row(output: Any = None, *, given_input: Any = "1+2?", **more: Any) -> dict[str, Any]:
    response = {"model": "m", "output": [ANSWER] if output is None else output, **more.pop("response", {})}
    return {
        "_ng_task_index": 7,
        "_ng_rollout_index": 1,
        "responses_create_params": {"input": given_input},
        "response": response,
        "reward": 1.0,
        "mask_sample": False,
        **more,
    }


def convert(source: dict[str, Any]) -> dict[str, Any]:
    document = LossyProfile().convert(source, CONTEXT)
    # What is written can be read back under the same rules.
    data = document.encode()
    Document.parse(data)
    return json.loads(data)


def test_a_plain_answer_is_a_question_and_an_agent_step() -> None:
    found = convert(row())

    assert [(step["step_id"], step["source"], step["message"]) for step in found["steps"]] == [
        (1, "user", "1+2?"),
        (2, "agent", "three"),
    ]
    assert found["trajectory_id"] == "s:7:1"
    assert found["agent"] == {"name": "openai_chat", "version": "1", "model_name": "m"}
    assert found["final_metrics"] == {"total_steps": 2}
    assert found["extra"]["gym_eval"]["profile"] == "response-to-atif-lossy-v1"


def test_system_developer_and_user_messages_become_steps_in_order() -> None:
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "developer", "content": [{"type": "input_text", "text": "no tools"}]},
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
    ]

    steps = convert(row(given_input=messages))["steps"]

    assert [(step["source"], step["message"]) for step in steps[:3]] == [
        ("system", "be brief"),
        ("system", "no tools"),
        ("user", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
    ]
    assert steps[1]["extra"] == {"gym_eval": {"role": "developer"}}


def test_calls_and_their_results_stand_in_one_step_with_parsed_arguments() -> None:
    reasoning = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "use add"}]}

    step = convert(row([reasoning, CALL, RESULT, ANSWER]))["steps"][1]

    assert step["reasoning_content"] == "use add"
    assert step["tool_calls"] == [{"tool_call_id": "c1", "function_name": "add", "arguments": {"a": 1, "b": None}}]
    assert step["observation"] == {"results": [{"source_call_id": "c1", "content": "3"}]}
    assert step["message"] == "three"
    assert step["extra"]["gym_eval"]["items"] == ["reasoning", "function_call", "function_call_output", "message"]


def test_a_result_of_no_call_is_kept_and_flagged() -> None:
    step = convert(row([{**RESULT, "call_id": "other"}, ANSWER]))["steps"][1]

    assert step["observation"]["results"] == [{"content": "3", "extra": {"gym_eval": {"unmatched_call_id": "other"}}}]
    assert step["extra"]["gym_eval"]["unmatched_tool_results"] == 1


def test_a_call_without_a_result_is_kept_and_flagged() -> None:
    step = convert(row([CALL]))["steps"][1]

    assert step["message"] == ""
    assert "observation" not in step
    assert step["extra"]["gym_eval"]["unanswered_tool_calls"] == ["c1"]


@pytest.mark.parametrize("arguments", ["{broken", "[1]", "3", "", None, 7])
def test_arguments_that_are_no_object_are_kept_as_they_are(arguments: Any) -> None:
    call = convert(row([{**CALL, "arguments": arguments}]))["steps"][1]["tool_calls"][0]

    assert call["arguments"] == {}
    kept = call.get("extra", {}).get("gym_eval", {}).get("unparsed_arguments")
    assert kept == arguments


def test_usage_is_reported_only_as_far_as_the_response_reports_it() -> None:
    usage = {
        "input_tokens": 9,
        "output_tokens": -1,
        "total_tokens": True,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens_details": {"reasoning_tokens": 2},
    }

    found = convert(row(response={"usage": usage}))

    assert found["steps"][1]["metrics"] == {"prompt_tokens": 9, "cached_tokens": 4, "extra": {"reasoning_tokens": 2}}
    assert found["final_metrics"] == {"total_prompt_tokens": 9, "total_cached_tokens": 4, "total_steps": 2}


@pytest.mark.parametrize("usage", [None, {}, "many", {"input_tokens": "9"}], ids=repr)
def test_missing_usage_stays_missing(usage: Any) -> None:
    assert "metrics" not in convert(row(response={"usage": usage}))["steps"][1]


def test_assistant_turns_of_the_input_are_copied_context() -> None:
    messages = [{"role": "user", "content": "1+2?"}, CALL, RESULT, {"role": "user", "content": "and?"}]

    steps = convert(row(given_input=messages))["steps"]

    assert [step["source"] for step in steps] == ["user", "agent", "user", "agent"]
    assert steps[1]["is_copied_context"] is True
    assert steps[1]["observation"]["results"][0]["source_call_id"] == "c1"
    assert "metrics" not in steps[1]


def test_parts_and_items_without_a_place_are_named_by_type() -> None:
    paper = {"type": "input_file", "file_id": "f"}
    question = [{"role": "user", "content": [{"type": "input_text", "text": "what?"}, paper]}]

    steps = convert(row([{"type": "web_search_call", "id": "w"}, ANSWER], given_input=question))["steps"]

    assert steps[0]["message"] == "what?"
    assert steps[0]["extra"]["gym_eval"]["omitted"] == ["input_file"]
    assert steps[1]["extra"]["gym_eval"]["omitted"] == ["web_search_call"]


def test_a_row_with_an_observed_trajectory_says_that_it_was_not_mapped() -> None:
    found = convert(row(ng_trajectory={"schema_version": "1.0"}))

    assert found["extra"]["gym_eval"]["not_mapped"] == ["ng_trajectory"]
    assert found["extra"]["gym_eval"]["profile"] == "response-to-atif-lossy-v1"


def test_the_agent_that_the_row_names_wins() -> None:
    assert convert(row(agent_ref={"name": "my_agent"}))["agent"]["name"] == "my_agent"


def test_text_that_is_no_unicode_is_replaced_and_counted() -> None:
    broken = {"type": "message", "content": [{"type": "output_text", "text": "a\ud800b"}]}

    found = convert(row([broken]))

    assert found["steps"][1]["message"] == "a\ufffdb"
    assert found["extra"]["gym_eval"]["replaced_texts"] == 1


def test_integers_of_any_size_survive_in_arguments() -> None:
    call = {**CALL, "arguments": '{"n": 123456789012345678901234567890}'}

    found = convert(row([call]))

    assert found["steps"][1]["tool_calls"][0]["arguments"] == {"n": 123456789012345678901234567890}


@pytest.mark.parametrize("text", ["\u2028\u2029\u0085\x00\x1b", "</script>", "😀" * 3, "\n\n", " "], ids=repr)
def test_hostile_text_arrives_unchanged(text: str) -> None:
    message = {"type": "message", "content": [{"type": "output_text", "text": text}]}

    assert convert(row([message]))["steps"][1]["message"] == text


def test_a_message_of_an_unknown_role_is_an_error_not_a_guess() -> None:
    with pytest.raises(RowError, match="belongs to nobody"):
        convert(row(given_input=[{"role": "narrator", "content": "once"}]))


def test_a_row_without_a_response_has_no_profile() -> None:
    with pytest.raises(RowError, match="no ng_trajectory or response"):
        choose(PROFILES[Choice.AUTO], {"_ng_task_index": 0})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
ITEM = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["message", "reasoning", "function_call", "function_call_output", "other"]) | JSON,
        "role": st.sampled_from(["user", "assistant"]),
        "content": JSON,
        "summary": JSON,
        "call_id": st.sampled_from(["a", "b", ""]) | JSON,
        "name": JSON,
        "arguments": JSON,
        "output": JSON,
    },
)


@settings(max_examples=200, deadline=None)
@given(output=st.lists(ITEM | JSON, max_size=6), usage=JSON, created=JSON, model=JSON)
def test_whatever_a_response_holds_the_document_is_valid_or_there_is_a_reason(
    output: list[Any], usage: Any, created: Any, model: Any
) -> None:
    source = row(output, response={"usage": usage, "created_at": created, "model": model})

    found = convert(source)

    assert found["final_metrics"]["total_steps"] == len(found["steps"]) == 2

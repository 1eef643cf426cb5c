"""Whatever JSON a server gives for an answer: an answer whose row can be read back, or a reply that is called unusable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector import jsonl
from collector.agents.chat_reply import answer_of
from collector.agents.openai_responses import answer_in
from collector.formats import row_lines, rows
from collector.outcomes import Answer, Completed, Verdict

ROW = {"_ng_task_index": 0, "_ng_rollout_index": 0, "responses_create_params": {"input": "?"}}

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


def objects(**known: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects with any of the keys of ``known``, each with a value of its kind or of any."""
    return st.fixed_dictionaries({}, optional={key: value | anything for key, value in known.items()})


words = st.sampled_from(["stop", "length", "error", "completed", "incomplete", "max_tokens", "max_output_tokens"])
function_calls = st.lists(objects(id=st.text(), function=objects(name=st.text(), arguments=st.text())), max_size=2)
parts = st.lists(objects(type=st.sampled_from(["output_text", "refusal"]), text=st.text()), max_size=2)
chat_message = objects(content=st.text() | parts, tool_calls=function_calls, refusal=st.text(), reasoning_content=st.text())
usage = objects(prompt_tokens=st.integers(), prompt_tokens_details=objects(cached_tokens=st.integers()))
chat_replies = objects(
    choices=st.tuples(objects(message=chat_message, finish_reason=words)).map(list),
    usage=usage, id=st.text(), created=st.integers(), model=st.text(),
)  # fmt: skip
output = st.lists(objects(type=st.just("message"), content=parts), max_size=2)
response_replies = objects(output=output, status=words, incomplete_details=objects(reason=words), error=objects(message=words))


def check(answer_from: Callable[[Any], Answer], reply: Any) -> None:
    try:
        answer = answer_from(reply)
    except ValueError:
        return
    done = Completed(answer=answer, verdict=Verdict(reward=1.0))
    line = row_lines.result_line(jsonl.dumps(ROW), ROW, done, run_id="r", session=1, attempt=0)
    assert rows.parse_verdict(line).reward == 1.0


@settings(max_examples=400, deadline=None)
@given(chat_replies | anything)
def test_any_chat_reply_is_recorded_or_unusable(reply: Any) -> None:
    check(lambda value: answer_of(value, {}, model="m", now=0.0), reply)


@settings(max_examples=400, deadline=None)
@given(response_replies | anything)
def test_any_response_object_is_recorded_or_unusable(reply: Any) -> None:
    check(answer_in, reply)


@pytest.mark.parametrize("details", [[], "max_output_tokens", 7, {"reason": ["max_output_tokens"]}, {"reason": None}])
def test_details_of_another_kind_name_no_token_limit_and_the_row_is_read(details: object) -> None:
    check(answer_in, {"output": [], "status": "incomplete", "incomplete_details": details})
    assert not rows.names_token_limit(details)


@pytest.mark.parametrize("reason", ["max_output_tokens", "max_tokens"])
def test_both_words_for_the_token_limit_are_known_when_a_row_is_read_again(reason: str) -> None:
    answer = answer_in({"output": [], "status": "incomplete", "incomplete_details": {"reason": reason}})
    done = Completed(answer=answer, verdict=Verdict(reward=0.0))

    line = row_lines.result_line(jsonl.dumps(ROW), ROW, done, run_id="r", session=1, attempt=0)

    assert answer.truncated
    assert rows.parse_verdict(line).is_truncated

"""The strict profile: a row's own observation without loss, or a refusal that says what is in the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest

from exporters.atif.conversion import PROFILES
from exporters.atif.documents import Document
from exporters.atif.lossy import LossyProfile
from exporters.atif.profile import Choice, Context, choose
from exporters.atif.strict import StrictProfile
from exporters.strict_rows import RowError
from tests.exporters.observed_rows import message, observed_row

CONTEXT = Context(session_id="s", agent_name="x", agent_version="1.0.0", exporter_version="9")


def convert(row: dict[str, Any]) -> dict[str, Any]:
    data = StrictProfile().convert(row, CONTEXT).encode()
    Document.parse(data)
    return orjson.loads(data)


def test_each_model_call_is_one_step_with_its_tools_and_usage() -> None:
    document = convert(observed_row())

    assert [step["source"] for step in document["steps"]] == ["system", "user", "agent", "agent"]
    acting, answering = document["steps"][2:]
    assert acting["message"] == ""
    assert acting["reasoning_content"] == "I need the tool."
    assert acting["tool_calls"] == [
        {
            "tool_call_id": "c1",
            "function_name": "weather",
            "arguments": {"city": "Bonn"},
            "extra": {"nemo_gym": {"source_item_id": "fc_1"}},
        }
    ]
    assert acting["observation"]["results"][0]["source_call_id"] == "c1"
    assert acting["observation"]["results"][0]["extra"]["nemo_gym"]["duration_ms"] == 250.0
    assert acting["metrics"] == {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "cached_tokens": 1,
        "extra": {"reasoning_tokens": 2, "total_tokens": 15},
    }
    assert acting["timestamp"] == "2026-01-01T00:00:00.250000Z"
    assert answering["message"] == [{"type": "text", "text": "It is sunny."}]
    assert answering["llm_call_count"] == 1
    assert answering["extra"]["nemo_gym"]["turn"] == {"turn_no": 2, "step_count": 1, "resolved": True}
    assert document["final_metrics"] == {
        "total_prompt_tokens": 30,
        "total_completion_tokens": 15,
        "total_cached_tokens": 2,
        "total_steps": 4,
    }
    assert document["extra"]["nemo_gym"]["conversion"] == {"profile": "ng-trajectory-to-atif-v1", "status": "complete"}
    assert document["agent"] == {"name": "agent_x", "version": "1.0.0", "model_name": "m-x"}


def changed(change: Callable[[dict[str, Any], list[dict[str, Any]]], object]) -> dict[str, Any]:
    row = observed_row()
    change(row["ng_trajectory"], row["ng_trajectory"]["invocations"][0]["conversation"])
    return row


def _everywhere(t: dict[str, Any], c: list[dict[str, Any]], place: int, **values: Any) -> None:
    for items in (c, *(turn["question"] for turn in t["turns"])):
        items[place] |= values


REFUSED: dict[str, tuple[Callable[[dict[str, Any], list[dict[str, Any]]], object], str]] = {
    "observation-gap": (lambda t, c: t["gaps"].append({"code": "x"}), "gaps"),
    "two-roots": (lambda t, c: t["invocations"].append({**t["invocations"][0], "invocation_id": "b"}), "not exactly one"),
    "no-invocation": (lambda t, c: t["invocations"].clear(), "not exactly one"),
    "root-failed": (lambda t, c: t["invocations"][0].update(status="failed"), "not 'completed'"),
    "sub-agent": (lambda t, c: t["invocations"][0].update(parent_invocation_id="p"), "sub-agent"),
    "developer": (lambda t, c: _everywhere(t, c, 0, role="developer"), "developer"),
    "copied-assistant": (lambda t, c: c.insert(2, message("earlier", "m0")), "question"),
    "later-user-turn": (lambda t, c: c.append({"role": "user", "content": "And?", "type": "message"}), "later user turn"),
    "missing-result": (lambda t, c: (c.pop(4), t["turns"][1]["question"].pop()), "exactly"),
    "duplicate-result": (lambda t, c: (c.insert(5, c[4]), t["turns"][1]["question"].append(c[4])), "exactly"),
    "result-of-no-call": (
        lambda t, c: (c[4].update(call_id="zz"), t["turns"][1]["question"][4].update(call_id="zz")),
        "no record of how",
    ),
    "no-model-call": (lambda t, c: t["turns"][1].update(model_calls=[]), "not exactly one"),
    "two-model-calls": (
        lambda t, c: t["turns"][1].update(model_calls=t["invocations"][0]["model_calls"]),
        "2 captured model calls",
    ),
    "unknown-model-call": (lambda t, c: t["turns"][1].update(model_calls=[{"model_call_id": "no"}]), "0 captured"),
    "failed-call": (lambda t, c: t["model_calls"][1]["response_metadata"].update(status_code=500), "status 500"),
    "provider-error": (lambda t, c: t["model_calls"][1]["response_metadata"].update(error_category="x"), "failed"),
    "calls-said-and-none-made": (
        lambda t, c: t["model_calls"][1]["response_metadata"].update(finish_reason="tool_calls"),
        "contradicts",
    ),
    "stop-said-and-calls-made": (
        lambda t, c: t["model_calls"][0]["response_metadata"].update(finish_reason="stop"),
        "contradicts",
    ),
    "cut-short": (lambda t, c: t["model_calls"][1]["response_metadata"].update(finish_reason="length"), "incomplete"),
    "total-below-parts": (lambda t, c: t["model_calls"][1]["token_stats"].update(total_tokens=3), "less than"),
    "more-cached-than-prompt": (lambda t, c: t["model_calls"][1]["token_stats"].update(cached_tokens=99), "more than"),
    "negative-count": (lambda t, c: t["model_calls"][1]["token_stats"].update(prompt_tokens=-1), "prompt_tokens is -1"),
    "image": (lambda t, c: _everywhere(t, c, 1, content=[{"type": "input_image", "image_url": "x"}]), "parts of text"),
    "annotation": (lambda t, c: c[5]["content"][0].update(annotations=[{"type": "url"}]), "annotations"),
    "log-probabilities": (lambda t, c: c[5]["content"][0].update(logprobs=[{"token": "a"}]), "log probabilities"),
    "encrypted-reasoning": (lambda t, c: _everywhere_thought(t, c, encrypted_content="z"), "encrypted"),
    "reasoning-in-segments": (
        lambda t, c: _everywhere_thought(t, c, summary=[{"text": "a", "type": "s"}, {"text": "b", "type": "s"}]),
        "segments",
    ),
    "arguments-no-object": (lambda t, c: _everywhere_call(t, c, arguments="[1]"), "not a JSON object"),
    "arguments-broken": (lambda t, c: _everywhere_call(t, c, arguments="{"), "not a JSON object"),
    "training-data": (lambda t, c: c[5].update(generation_token_ids=[1]), "training data"),
    "surrogate": (lambda t, c: c[5]["content"][0].update(text="\ud800"), "surrogate"),
    "unknown-root-field": (lambda t, c: t.update(zzz=1), "zzz"),
    "unknown-turn-field": (lambda t, c: t["turns"][0].update(zzz=1), "zzz"),
    "unknown-item-field": (lambda t, c: c[5].update(zzz=1), "zzz"),
    "other-version": (lambda t, c: t.update(schema_version="2.0"), "2.0"),
    "other-rollout": (lambda t, c: t.update(rollout_id="9-9"), "selected attempt"),
    "tool-failed": (lambda t, c: t["tool_calls"][0].update(status="failed"), "not completed"),
    "tool-not-recorded": (lambda t, c: t["tool_calls"].clear(), "no record of how"),
    "tool-never-called": (
        lambda t, c: t["tool_calls"].append({**t["tool_calls"][0], "tool_call_id": "c9"}),
        "2 were recorded",
    ),
    "other-output": (lambda t, c: t["tool_calls"][0].update(output="rain"), "another recorded output"),
    "answer-differs": (lambda t, c: t["turns"][1].update(answer=[message("no", "m2")]), "answer"),
    "reasoning-differs": (lambda t, c: t["turns"][0].update(reasoning_content=None), "reasoning_content"),
    "turn-number": (lambda t, c: t["turns"][1].update(turn_no=3), "turn_no"),
    "step-count": (lambda t, c: t["turns"][1].update(step_count=7), "step_count"),
    "no-turns": (lambda t, c: t.update(turns=[]), "0 turns"),
    "unfinished-item": (lambda t, c: c[5].update(status="incomplete"), "status"),
    "refusal": (lambda t, c: c[5].update(content=[{"type": "refusal", "refusal": "no"}]), "parts of text"),
}


def _everywhere_thought(t: dict[str, Any], c: list[dict[str, Any]], **values: Any) -> None:
    for item in (c[2], t["turns"][0]["reasoning_content"][0], t["turns"][1]["question"][2]):
        item.update(values)


def _everywhere_call(t: dict[str, Any], c: list[dict[str, Any]], **values: Any) -> None:
    for item in (c[3], t["turns"][0]["answer"][0], t["turns"][1]["question"][3]):
        item.update(values)


@pytest.mark.parametrize(("change", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_what_would_be_lost_or_invented_is_refused_with_the_reason(
    change: Callable[[dict[str, Any], list[dict[str, Any]]], object], reason: str
) -> None:
    row = changed(change)

    with pytest.raises(RowError, match=reason):
        StrictProfile().convert(row, CONTEXT)


def test_a_call_that_no_turn_names_is_kept_apart() -> None:
    row = observed_row()
    calls = row["ng_trajectory"]["model_calls"]
    calls.append({**calls[1], "model_call_id": "mc3"})

    document = convert(row)

    assert [call["model_call_id"] for call in document["extra"]["nemo_gym"]["surplus_model_calls"]] == ["mc3"]


def test_a_sum_with_an_unreported_part_is_no_sum() -> None:
    row = observed_row()
    row["ng_trajectory"]["model_calls"][1]["token_stats"] = {}

    assert convert(row)["final_metrics"] == {"total_steps": 4}
    assert "metrics" not in convert(row)["steps"][3]


def test_a_retried_attempt_is_known_by_its_own_id() -> None:
    row = observed_row()
    row["_ng_attempt_index"] = 2
    trajectory = row["ng_trajectory"]
    for part in (trajectory, *trajectory["turns"]):
        part["rollout_id"] = "4-1-a2"

    assert convert(row)["extra"]["nemo_gym"]["source"]["rollout_id"] == "4-1-a2"


def test_the_trajectory_of_another_attempt_is_refused() -> None:
    row = observed_row()
    row["_ng_attempt_index"] = 2
    row["ng_trajectory"]["rollout_id"] = "4-1-a1"

    with pytest.raises(RowError, match="the selected attempt is '4-1-a2'"):
        StrictProfile().convert(row, CONTEXT)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(item, (*path, key))


@pytest.mark.parametrize("value", [None, 7, "x", [], {}, [1], {"a": 1}, True, 1.5, -1, 2**70, [{}], [[]]], ids=repr)
@pytest.mark.parametrize("choice", [Choice.STRICT, Choice.LOSSY])
def test_whatever_stands_anywhere_in_a_row_it_is_a_trajectory_or_refused(choice: Choice, value: Any) -> None:
    for path in places(observed_row()):
        row = observed_row()
        part: Any = row
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = value
        try:
            data = choose(PROFILES[choice], row).convert(row, CONTEXT).encode()
        except RowError:
            continue
        Document.parse(data)


def test_each_row_is_converted_by_what_it_has() -> None:
    with_observation, without = observed_row(), {**observed_row(), "ng_trajectory": None}

    assert isinstance(choose(PROFILES[Choice.AUTO], with_observation), StrictProfile)
    assert isinstance(choose(PROFILES[Choice.AUTO], without), LossyProfile)
    assert isinstance(choose(PROFILES[Choice.LOSSY], with_observation), LossyProfile)
    with pytest.raises(RowError, match="the row has no ng_trajectory"):
        choose(PROFILES[Choice.STRICT], without)

"""A row with its own observation: two turns with one tool call between them, and ways to change it."""

from __future__ import annotations

import copy
from typing import Any


def message(text: str, identity: str) -> dict[str, Any]:
    """An assistant's message as the Responses API writes it."""
    part = {"annotations": [], "text": text, "type": "output_text", "logprobs": None}
    return {"id": identity, "content": [part], "role": "assistant", "status": "completed", "type": "message"}


def observed_row() -> dict[str, Any]:
    """A row that the strict profile takes."""
    ident = {"task_id": "4", "rollout_id": "4-1"}
    prompt = [
        {"content": "Be careful.", "role": "system", "type": "message"},
        {"content": "What is the weather?", "role": "user", "type": "message"},
    ]
    thought = {"id": "rs_1", "summary": [{"text": "I need the tool.", "type": "summary_text"}], "type": "reasoning"}
    call = {"arguments": '{"city": "Bonn"}', "call_id": "c1", "name": "weather", "type": "function_call", "id": "fc_1"}
    result = {"call_id": "c1", "output": "sunny", "type": "function_call_output", "id": "fo_1"}
    final = message("It is sunny.", "m2")
    refs = [{"model_call_id": f"mc{i}", "model_ref": {"type": "t", "name": "policy"}, "response_id": f"r{i}"} for i in (1, 2)]
    invocation = {
        "kind": "agent_invocation", "invocation_id": "root", "parent_invocation_id": None, "spawned_by_tool_call_id": None,
        "status": "completed", "duration_ms": 12.5, "error_type": None, "model_calls": refs,
        "conversation": [*prompt, thought, call, result, final],
    }  # fmt: skip
    turns = [
        {
            "invocation_id": "root", **ident, "turn_no": 1, "timestamp": 1767225600.25, "question": prompt, "answer": [call],
            "reasoning_content": [thought], "resolved": None, "step_count": 1, "model_calls": [refs[0]],
        },
        {
            "invocation_id": "root", **ident, "turn_no": 2, "timestamp": 1767225602.0,
            "question": [*prompt, thought, call, result], "answer": [final], "reasoning_content": None, "resolved": True,
            "step_count": 1, "model_calls": [refs[1]],
        },
    ]  # fmt: skip
    tool = {
        "kind": "tool_call", "invocation_id": "root", "tool_call_id": "c1", "tool_name": "weather", "status": "completed",
        "started_at": 101.5, "completed_at": 101.75, "duration_ms": 250.0, "timing_source": "executor", "error_type": None,
        "sandbox_id": None, "output": "sunny",
    }  # fmt: skip
    row = {
        "responses_create_params": {"input": "What is the weather?"},
        "response": {"id": "r2", "model": "m-x", "object": "response", "output": [thought, call, result, final]},
        "reward": 1.0, "_ng_task_index": 4, "_ng_rollout_index": 1, "agent_ref": {"name": "agent_x"},
        "ng_trajectory": {
            "schema_version": "1.0", **ident, "invocations": [invocation], "turns": turns,
            "model_calls": [_model_call(1, refs, "tool_calls"), _model_call(2, refs, "stop")], "tool_calls": [tool], "gaps": [],
        },
    }  # fmt: skip
    # Parts are shared above; a change of one place must be a change of one place.
    return copy.deepcopy(row)


def _model_call(number: int, refs: list[dict[str, Any]], reason: str) -> dict[str, Any]:
    return {
        "model_call_id": f"mc{number}", "started_at": 100.0 + number, "completed_at": 101.0 + number, "duration_ms": 1000.0,
        "request": None, "response": None,
        "response_metadata": {
            "response_id": f"r{number}", "model_ref": refs[number - 1]["model_ref"], "model": "m-x", "dialect": "responses",
            "status_code": 200, "response_status": "completed", "finish_reason": reason,
        },
        "token_stats": {
            "prompt_tokens": 10 * number, "completion_tokens": 5 * number, "reasoning_tokens": 2, "total_tokens": 15 * number,
            "cached_tokens": 1,
        },
    }  # fmt: skip

"""From a chat completions reply to an OpenAI Responses object. Pure; nothing the server did not report is filled in."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from collector.outcomes import Answer

#: The server gave up on its own generation; what it sent is not the model's answer.
_ABORTED: Final = frozenset({"abort", "error"})


class ChatTurn(NamedTuple):
    """The parts of a chat reply that matter."""

    text: str
    reasoning: str | None
    calls: list[dict[str, Any]]
    finish_reason: str | None
    refusal: str | None


def answer_of(reply: Any, params: dict[str, Any], *, model: str, now: float) -> Answer:
    """The answer in a decoded chat reply. Raises ValueError with what is missing when there is none."""
    turn = _turn_of(reply)
    reply_id = reply["id"] if isinstance(reply.get("id"), str) else "chatcmpl"
    reasons = {"length": "max_output_tokens", "content_filter": "content_filter"}
    incomplete = reasons.get(turn.finish_reason or "")
    response: dict[str, Any] = {
        "id": f"resp_{reply_id}",
        "object": "response",
        "created_at": reply["created"] if isinstance(reply.get("created"), int) else int(now),
        "model": reply["model"] if isinstance(reply.get("model"), str) else model,
        "status": "incomplete" if incomplete else "completed",
        "incomplete_details": {"reason": incomplete} if incomplete else None,
        "error": None,
        "output": _output_of(turn, reply_id, status="incomplete" if incomplete else "completed"),
        "parallel_tool_calls": params.get("parallel_tool_calls", True),
        "tool_choice": params.get("tool_choice", "auto"),
        "tools": params.get("tools", []),
    }
    usage = _usage_of(reply.get("usage"))
    if usage:
        response["usage"] = usage
    return Answer(response=response, text=turn.text, truncated=turn.finish_reason == "length")


def _turn_of(reply: Any) -> ChatTurn:
    choices = reply.get("choices") if isinstance(reply, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if choice is None or not isinstance(message, dict):
        raise ValueError("it has no choices[0].message")
    finish_reason = choice.get("finish_reason")
    if isinstance(finish_reason, str) and finish_reason in _ABORTED:
        raise ValueError(f"the server ended its generation with finish_reason {finish_reason!r}")
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    refusal = message.get("refusal")
    return ChatTurn(
        text=_text_of(message.get("content")),
        reasoning=reasoning if isinstance(reasoning, str) else None,
        calls=_calls_of(message.get("tool_calls")),
        finish_reason=finish_reason if isinstance(finish_reason, str) else None,
        refusal=refusal if isinstance(refusal, str) and refusal else None,
    )


def _text_of(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
    raise ValueError("choices[0].message.content is neither a text nor null")


def _calls_of(calls: Any) -> list[dict[str, Any]]:
    if calls is not None and not isinstance(calls, list):
        raise ValueError("choices[0].message.tool_calls is neither a list nor null")
    return [_call_of(call) for call in calls or []]


def _call_of(call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not all(isinstance(function.get(key), str) for key in ("name", "arguments")):
        raise ValueError("choices[0].message.tool_calls has an entry without a function name and arguments")
    call_id = call.get("id")
    return {
        "call_id": call_id if isinstance(call_id, str) else "",
        "name": function["name"],
        "arguments": function["arguments"],
    }


def _output_of(turn: ChatTurn, reply_id: str, *, status: str) -> list[dict[str, Any]]:
    output: list[dict[str, Any]] = []
    if turn.reasoning:
        summary = [{"type": "summary_text", "text": turn.reasoning}]
        output.append({"id": f"rs_{reply_id}", "type": "reasoning", "summary": summary})
    if turn.text or turn.refusal or not turn.calls:
        content: list[dict[str, Any]] = []
        if turn.text or not turn.refusal:
            content.append({"type": "output_text", "text": turn.text, "annotations": []})
        if turn.refusal:
            content.append({"type": "refusal", "refusal": turn.refusal})
        message = {"id": f"msg_{reply_id}", "type": "message", "role": "assistant", "status": status, "content": content}
        output.append(message)
    for position, call in enumerate(turn.calls):
        output.append({"id": f"fc_{reply_id}_{position}", "type": "function_call", "status": status, **call})
    return output


def _usage_of(usage: Any) -> dict[str, Any]:
    if not isinstance(usage, dict):
        return {}
    counts = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens", "total_tokens": "total_tokens"}
    kept: dict[str, Any] = {ours: usage[theirs] for ours, theirs in counts.items() if _is_count(usage.get(theirs))}
    for ours, theirs, key in (
        ("input_tokens_details", "prompt_tokens_details", "cached_tokens"),
        ("output_tokens_details", "completion_tokens_details", "reasoning_tokens"),
    ):
        details = usage.get(theirs)
        if isinstance(details, dict) and _is_count(details.get(key)):
            kept[ours] = {key: details[key]}
    return kept


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)

"""One row as a sample of an inspect_ai log (version 2): conversation, score, usage, and where it came from. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from collector.formats import rows
from collector.outcome_checks import is_reward
from exporters.atif.documents import Content, Document, Step, TextPart
from exporters.atif.lossy import LossyProfile
from exporters.atif.profile import TRAJECTORY, Context
from exporters.strict_rows import RowError

SCORER: Final = "reward"
_PROFILE: Final = LossyProfile()
_CONTEXT: Final = Context(session_id="inspect", agent_name="agent", agent_version="1", exporter_version="1")
_SHORT: Final = 200


def sample_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The sample of ``row``: its task is the id, its repeat, counted from 1, the epoch."""
    document = _document(row)
    steps = document.steps if document else ()
    model = _model(row)
    prompt = [message for step in steps[:-1] for message in _messages(step, model)]
    answer = [message for step in steps[-1:] for message in _messages(step, model)]
    sample: dict[str, Any] = {
        "id": row[rows.TASK_INDEX],
        "epoch": row[rows.ROLLOUT_INDEX] + 1,
        "input": prompt or "",
        "target": _target(row),
        "messages": [*prompt, *answer],
        "output": _output(answer, model, row),
        "scores": scores_of(row),
        "metadata": _metadata(row),
        "model_usage": {model: usage} if (usage := _usage(row)) else {},
        "uuid": f"{row.get(rows.RUN_ID) or 'run'}-{row[rows.TASK_INDEX]}-{row[rows.ROLLOUT_INDEX]}",
        "completed_at": None,
    }
    return {key: value for key, value in sample.items() if value is not None}


def summary_of(sample: Mapping[str, Any]) -> dict[str, Any]:
    """What a list of samples shows of one."""
    given = sample["input"]
    question = next((m["content"] for m in reversed(given) if m["role"] == "user"), "") if isinstance(given, list) else given
    return {
        "id": sample["id"],
        "epoch": sample["epoch"],
        "input": question[:_SHORT],
        "target": sample["target"][:_SHORT],
        "scores": sample["scores"],
        "model_usage": sample["model_usage"],
        "uuid": sample["uuid"],
        "completed": True,
        "message_count": len(sample["messages"]),
    }


def scores_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The reward, where it was measured; a masked or absent one is no score."""
    reward = row.get("reward")
    if not is_measured(row):
        return {}
    answer = row.get("extracted_answer")
    shown = {"answer": answer} if isinstance(answer, str) else {}
    return {SCORER: {"value": reward, **shown}}


def is_measured(row: Mapping[str, Any]) -> bool:
    """Whether the row has a score that counts."""
    return is_reward(row.get("reward")) and row.get("mask_sample") is not True


def _document(row: Mapping[str, Any]) -> Document | None:
    if not _PROFILE.accepts(row):
        return None
    try:
        return _PROFILE.convert(row, _CONTEXT)
    except RowError:
        # The row is a sample without a conversation; its response stands in the rows.
        return None


def _messages(step: Step, model: str) -> Iterator[dict[str, Any]]:
    if step.source != "agent":
        yield {"role": step.source, "content": _text(step.message)}
        return
    content: Any = _text(step.message)
    if step.reasoning_content:
        content = [{"type": "reasoning", "reasoning": step.reasoning_content}, {"type": "text", "text": content}]
    message: dict[str, Any] = {"role": "assistant", "content": content, "model": model}
    if step.tool_calls:
        message["tool_calls"] = [
            {"id": call.tool_call_id, "function": call.function_name, "arguments": call.arguments} for call in step.tool_calls
        ]
    yield message
    names = {call.tool_call_id: call.function_name for call in step.tool_calls or ()}
    for result in step.observation.results if step.observation else ():
        found = {"tool_call_id": result.source_call_id, "function": names.get(result.source_call_id or "")}
        yield {"role": "tool", "content": _text(result.content), **{key: value for key, value in found.items() if value}}


def _text(content: Content | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n\n".join(part.text for part in content if isinstance(part, TextPart))


def _output(answer: list[dict[str, Any]], model: str, row: Mapping[str, Any]) -> dict[str, Any]:
    assistant = next((message for message in answer if message["role"] == "assistant"), None)
    response = row.get("response")
    details = response.get("incomplete_details") if isinstance(response, Mapping) else None
    cut = rows.names_token_limit(details)
    choices = [{"message": assistant, "stop_reason": "max_tokens" if cut else "stop"}] if assistant else []
    usage = _usage(row)
    return {"model": model, "choices": choices, **({"usage": usage} if usage else {})}


def _usage(row: Mapping[str, Any]) -> dict[str, int] | None:
    response = row.get("response")
    usage = response.get("usage") if isinstance(response, Mapping) else None
    if not isinstance(usage, Mapping):
        return None
    found = {key: usage.get(key) for key in ("input_tokens", "output_tokens", "total_tokens")}
    counts = {key: value for key, value in found.items() if isinstance(value, int) and not isinstance(value, bool)}
    return counts or None


def _model(row: Mapping[str, Any]) -> str:
    response = row.get("response")
    name = response.get("model") if isinstance(response, Mapping) else None
    return name if isinstance(name, str) and name else "unknown"


def _target(row: Mapping[str, Any]) -> str:
    for key in ("expected_answer", "target", "answer"):
        value = row.get(key)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return str(value)
    return ""


def _metadata(row: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in row.items() if key not in {"response", "responses_create_params", TRAJECTORY}}
    return {**kept, "masked": row.get("mask_sample") is True}

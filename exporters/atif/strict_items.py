"""The items of a conversation for the strict profile: taken whole or refused. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from collector import jsonl
from collector.text.counted import counted
from exporters.atif.documents import Content, ObservationResult, TextPart, ToolCall
from exporters.strict_rows import RowError

#: Key under which this mapping puts what the format has no field for; the name is that of the mapping's origin.
EXTRA: Final = "nemo_gym"
_TRAINING: Final = frozenset({"prompt_token_ids", "generation_token_ids", "generation_log_probs", "routed_experts"})
_KEYS: Final = {
    "message": frozenset({"id", "type", "role", "status", "content"}),
    "reasoning": frozenset({"id", "type", "summary", "content", "encrypted_content", "status"}),
    "function_call": frozenset({"id", "type", "call_id", "name", "arguments", "status"}),
    "function_call_output": frozenset({"id", "type", "call_id", "output", "status"}),
}
_TEXTS: Final = frozenset({"input_text", "output_text", "text"})
_PART_KEYS: Final = frozenset({"type", "text", "annotations", "logprobs"})
_TIMING: Final = ("started_at", "completed_at", "duration_ms", "timing_source")


@dataclass(slots=True)
class Answer:
    """What one model call gave, and what its tools gave back."""

    reasoning: str | None = None
    reasoning_ids: list[str] = field(default_factory=list[str])
    message: Content | None = None
    message_id: str | None = None
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    results: list[ObservationResult] = field(default_factory=list[ObservationResult])

    @property
    def source_items(self) -> dict[str, Any]:
        """The ids of the items that became one step."""
        ids: dict[str, Any] = {"reasoning_ids": self.reasoning_ids} if self.reasoning_ids else {}
        return {**ids, **({"message_id": self.message_id} if self.message_id else {})}


def kind_of(item: Any, where: str) -> str:
    """The item's type, with only known keys and a whole content. Raises RowError."""
    if not isinstance(item, Mapping):
        raise RowError(f"{where}: a {type(item).__name__}, not an item")
    kind = item.get("type") or ("message" if "role" in item else None)
    if kind not in _KEYS:
        raise RowError(f"{where}: items of type {kind!r} are not supported")
    if not item.keys() <= _KEYS[kind]:
        _check_others(item, _KEYS[kind], where)
    if item.get("status") not in {None, "completed"}:
        raise RowError(f"{where}: its status is {item['status']!r}")
    return kind


def _check_others(item: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    training = sorted(key for key in item.keys() & _TRAINING if item[key] is not None)
    if training:
        raise RowError(f"{where}: has training data: {', '.join(training)}")
    unknown = sorted(item.keys() - known - _TRAINING)
    if unknown:
        raise RowError(f"{where}: unknown fields would be lost: {', '.join(unknown[:5])}")


def content_of(content: Any, where: str) -> Content:
    """Text as it is, or parts of text. Raises RowError for anything else."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise RowError(f"{where}.content: neither text nor parts")
    return tuple(_part(part, f"{where}.content[{i}]") for i, part in enumerate(content))


def _part(part: Any, where: str) -> TextPart:
    if not isinstance(part, Mapping) or part.get("type") not in _TEXTS or not isinstance(part.get("text"), str):
        raise RowError(f"{where}: only parts of text are supported")
    if not part.keys() <= _PART_KEYS or part.get("annotations") or part.get("logprobs"):
        raise RowError(f"{where}: annotations, log probabilities and unknown fields would be lost")
    return TextPart(text=part["text"])


def read_answer(items: list[Any], start: int, tools: Mapping[str, Mapping[str, Any]]) -> Answer:
    """``items`` of one model call and its results; ``start`` is their place in the conversation. Raises RowError."""
    answer = Answer()
    for index, item in enumerate(items, start=start):
        where = f"conversation[{index}]"
        match kind_of(item, where):
            case "reasoning":
                _check_order(not (answer.message is not None or answer.calls or answer.results), where)
                _think(answer, item, where)
            case "message":
                if item.get("role") != "assistant":
                    raise RowError(f"{where}: a later {item.get('role')} turn is not supported")
                _check_order(not (answer.message is not None or answer.calls or answer.results), where)
                _say(answer, item, where)
            case "function_call":
                _check_order(not answer.results, where)
                answer.calls.append(_call(item, where))
            case _:
                answer.results.append(_result(item, where, tools))
    _check_results(answer, f"conversation[{start}]")
    return answer


def _check_order(is_ordered: bool, where: str) -> None:
    if not is_ordered:
        raise RowError(f"{where}: it comes after items that stand after it in a step")


def _think(answer: Answer, item: Mapping[str, Any], where: str) -> None:
    if item.get("encrypted_content"):
        raise RowError(f"{where}: encrypted reasoning is not supported")
    texts = [part for key in ("summary", "content") for part in item.get(key) or []]
    if answer.reasoning is not None or len(texts) != 1:
        raise RowError(f"{where}: reasoning in {counted(len(texts), 'segment')} or several items, not in one")
    text = texts[0].get("text") if isinstance(texts[0], Mapping) else None
    if not isinstance(text, str):
        raise RowError(f"{where}: reasoning that is no text")
    answer.reasoning = text
    if item.get("id"):
        answer.reasoning_ids.append(item["id"])


def _say(answer: Answer, item: Mapping[str, Any], where: str) -> None:
    if isinstance(item.get("content"), str):
        raise RowError(f"{where}: copied assistant context is not supported")
    answer.message = content_of(item.get("content"), where)
    answer.message_id = item.get("id")


def _call(item: Mapping[str, Any], where: str) -> ToolCall:
    call_id, name, given = item.get("call_id"), item.get("name"), item.get("arguments")
    if not isinstance(call_id, str) or not call_id or not isinstance(name, str) or not name:
        raise RowError(f"{where}: a tool call without id or name")
    try:
        arguments = jsonl.loads(given.encode()) if isinstance(given, str) else None
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        raise RowError(f"{where}.arguments: not a JSON object")
    extra = {EXTRA: {"source_item_id": item["id"]}} if item.get("id") else None
    return ToolCall(tool_call_id=call_id, function_name=name, arguments=arguments, extra=extra)


def _result(item: Mapping[str, Any], where: str, tools: Mapping[str, Mapping[str, Any]]) -> ObservationResult:
    call_id, output = item.get("call_id"), item.get("output")
    tool = tools.get(call_id) if isinstance(call_id, str) else None
    if tool is None:
        raise RowError(f"{where}: there is no record of how tool call {call_id!r} was executed")
    if tool.get("status") != "completed" or tool.get("error_type") is not None:
        raise RowError(f"{where}: tool call {call_id!r} is {tool.get('status')!r}, not completed")
    if tool.get("output") is not None and tool["output"] != output:
        raise RowError(f"{where}: tool call {call_id!r} has another recorded output")
    timing = {key: tool[key] for key in _TIMING if tool.get(key) is not None}
    extra = {**timing, **({"source_item_id": item["id"]} if item.get("id") else {})}
    content = content_of(output, f"{where}.output")
    return ObservationResult(source_call_id=call_id, content=content, extra={EXTRA: extra} if extra else None)


def _check_results(answer: Answer, where: str) -> None:
    wanted = [call.tool_call_id for call in answer.calls]
    found = [result.source_call_id for result in answer.results]
    if len(set(wanted)) != len(wanted):
        raise RowError(f"{where}: two tool calls have one id")
    if sorted(wanted) != sorted(name or "" for name in found):
        raise RowError(f"{where}: tool results must match the calls of their turn exactly: calls {wanted}, results {found}")

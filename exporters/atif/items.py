"""The items of the Responses API, read tolerantly: what has a place in ATIF, and what is named because it has none. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from collector import jsonl
from exporters.atif.documents import AudioPart, Content, Observation, ObservationResult, Part, StepMetrics, TextPart, ToolCall
from exporters.atif.media import media_part

#: Key under which everything that this exporter adds to a document stands.
EXTRA: Final = "gym_eval"
#: Levels of arguments that are kept as an object. A document adds its own, and pydantic and orjson write 254 in all.
MOST_ARGUMENT_LEVELS: Final = 200
_TEXT_TYPES: Final = frozenset({"input_text", "output_text", "text", "reasoning_text", "summary_text"})


@dataclass(slots=True)
class Turn:
    """What an agent said and did, gathered item by item."""

    #: Whether the format has a place for sound.
    has_audio: bool
    reasoning: list[str] = field(default_factory=list[str])
    parts: list[Part] = field(default_factory=list[Part])
    refusals: int = 0
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    outputs: list[tuple[str | None, Content]] = field(default_factory=list[tuple[str | None, Content]])
    #: Types in the order they came.
    order: list[str] = field(default_factory=list[str])
    #: Types of items and parts that have no place in the format.
    omitted: list[str] = field(default_factory=list[str])

    def add(self, item: Any) -> None:
        """Take one item of a response's output."""
        kind = type_of(item)
        self.order.append(kind)
        match kind:
            case "message":
                self._say(item)
            case "reasoning":
                self._think(item)
            case "function_call":
                self.calls.append(_call(item, len(self.calls)))
            case "function_call_output":
                self.outputs.append((_text(item.get("call_id")), self._content(item.get("output"))))
            case _:
                self.omitted.append(kind)

    @property
    def message(self) -> Content:
        """One text as it is, several as parts, none as the empty string."""
        return as_content(self.parts)

    def observation(self) -> Observation | None:
        """All results; one whose call is not of this turn keeps its content and says which call it names."""
        known = {call.tool_call_id for call in self.calls}
        results = tuple(_result(call_id, content, known) for call_id, content in self.outputs)
        return Observation(results=results) if results else None

    def extra(self) -> dict[str, Any]:
        """What a reader must know to not take the step for more than it is."""
        known = {call.tool_call_id for call in self.calls}
        found: dict[str, Any] = {}
        if len(self.order) > 1:
            found["items"] = self.order
        if self.omitted:
            found["omitted"] = self.omitted
        if self.refusals:
            found["refusals"] = self.refusals
        unmatched = sum(1 for call_id, _ in self.outputs if call_id not in known)
        if unmatched:
            found["unmatched_tool_results"] = unmatched
        answered = {call_id for call_id, _ in self.outputs}
        unanswered = [call.tool_call_id for call in self.calls if call.tool_call_id not in answered]
        if unanswered:
            found["unanswered_tool_calls"] = unanswered
        return {EXTRA: found} if found else {}

    def _say(self, item: Mapping[str, Any]) -> None:
        content = item.get("content")
        for part in content if isinstance(content, list) else [content]:
            if isinstance(part, Mapping) and part.get("type") == "refusal" and isinstance(part.get("refusal"), str):
                self.refusals += 1
                self.parts.append(TextPart(text=part["refusal"]))
                continue
            parts, omitted = parts_of(part, has_audio=self.has_audio)
            self.parts += parts
            self.omitted += omitted

    def _think(self, item: Mapping[str, Any]) -> None:
        for key in ("summary", "content"):
            texts, omitted = texts_of(item.get(key))
            self.reasoning += texts
            self.omitted += omitted
        if item.get("encrypted_content"):
            self.omitted.append("encrypted_content")

    def _content(self, output: Any) -> Content:
        if not isinstance(output, str | list):
            return jsonl.dumps(output).decode()
        parts, omitted = parts_of(output, has_audio=self.has_audio)
        self.omitted += omitted
        return as_content(parts)


def type_of(item: Any) -> str:
    """The type of an item; an input message may leave it out."""
    if not isinstance(item, Mapping):
        return type(item).__name__
    kind = item.get("type")
    if isinstance(kind, str):
        return kind
    return "message" if "role" in item else "untyped"


def texts_of(content: Any) -> tuple[list[str], list[str]]:
    """The texts in a message's content, and the types of the parts that are no text."""
    parts, omitted = parts_of(content, has_audio=True)
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    return texts, [*omitted, *(part.kind for part in parts if not isinstance(part, TextPart))]


def parts_of(content: Any, *, has_audio: bool) -> tuple[list[Part], list[str]]:
    """The parts of a message's content that have a place in the format, and the types of those that have none."""
    if content is None:
        return [], []
    found: list[Part] = []
    omitted: list[str] = []
    for part in content if isinstance(content, list) else [content]:
        text = _text_in(part)
        placed = media_part(part) if text is None else TextPart(text=text)
        if placed is None or (isinstance(placed, AudioPart) and not has_audio):
            omitted.append(type_of(part))
        else:
            found.append(placed)
    return found, omitted


def as_content(parts: Sequence[Part]) -> Content:
    """One text as it is, several parts and any medium as parts, nothing as the empty string."""
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].text
    return tuple(parts) if parts else ""


def _text_in(part: Any) -> str | None:
    if isinstance(part, Mapping):
        kind = part.get("type", "text")
        part = part.get("text") if isinstance(kind, str) and kind in _TEXT_TYPES else None
    return part if isinstance(part, str) else None


def metrics_of(usage: Any) -> StepMetrics | None:
    """What a response reports that it used; nothing is computed, and what is no count is left out."""
    if not isinstance(usage, Mapping):
        return None
    extra = {
        "reasoning_tokens": _detail(usage, "output_tokens_details", "reasoning_tokens"),
        "total_tokens": _count(usage, "total_tokens"),
    }
    reported = {name: value for name, value in extra.items() if value is not None}
    fields: dict[str, Any] = {
        "prompt_tokens": _count(usage, "input_tokens"),
        "completion_tokens": _count(usage, "output_tokens"),
        "cached_tokens": _detail(usage, "input_tokens_details", "cached_tokens"),
        "extra": reported or None,
    }
    return StepMetrics(**fields) if any(value is not None for value in fields.values()) else None


def joined(texts: Iterable[str]) -> str | None:
    """The texts with a blank line between them; None when there is none."""
    found = [text for text in texts if text]
    return "\n\n".join(found) if found else None


def _call(item: Mapping[str, Any], position: int) -> ToolCall:
    arguments, extra = _arguments(item.get("arguments"))
    call_id = _text(item.get("call_id")) or _text(item.get("id"))
    if call_id is None:
        # The format requires an id. The place in the response is one, and it is said that the model gave none.
        call_id = f"call-{position}"
        extra["id_is_position"] = True
    name = _text(item.get("name"))
    if name is None:
        extra["name_is_missing"] = True
    return ToolCall(
        tool_call_id=call_id, function_name=name or "", arguments=arguments, extra={EXTRA: extra} if extra else None
    )


def _arguments(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments as an object; text that is no JSON object, or a very deep one, is kept beside them as it is."""
    if isinstance(value, dict):
        return value, {}
    if isinstance(value, str):
        try:
            parsed = jsonl.loads(value.encode())
        except ValueError:
            parsed = None
        if isinstance(parsed, dict) and not _is_deeper(parsed, MOST_ARGUMENT_LEVELS):
            return parsed, {}
    return {}, {} if value is None else {"unparsed_arguments": value}


def _is_deeper(value: Any, levels: int) -> bool:
    level = [value]
    for _ in range(levels):
        level = [part for item in level if isinstance(item, dict | list) for part in _parts(item)]
    return bool(level)


def _parts(item: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return item.values() if isinstance(item, dict) else item


def _result(call_id: str | None, content: Content, known: set[str]) -> ObservationResult:
    if call_id is not None and call_id in known:
        return ObservationResult(source_call_id=call_id, content=content)
    return ObservationResult(content=content, extra={EXTRA: {"unmatched_call_id": call_id}})


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(values: Any, key: str) -> int | None:
    value = values.get(key) if isinstance(values, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _detail(usage: Mapping[str, Any], group: str, key: str) -> int | None:
    return _count(usage.get(group), key)

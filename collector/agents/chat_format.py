"""From Responses parameters to a chat completions body, and from a chat reply to a Responses object. Pure."""

from __future__ import annotations

from typing import Any, Final

#: Sent under the same name.
_SAME: Final = (
    "temperature",
    "top_p",
    "seed",
    "stop",
    "presence_penalty",
    "frequency_penalty",
    "parallel_tool_calls",
    "service_tier",
    "user",
)
_RENAMED: Final = (
    "input",
    "instructions",
    "max_output_tokens",
    "tools",
    "tool_choice",
    "text",
    "reasoning",
    "metadata",
    "model",
)
KNOWN: Final = frozenset({*_SAME, *_RENAMED, "top_logprobs"})
NUMBERS: Final = frozenset({"temperature", "top_p", "seed", "presence_penalty", "frequency_penalty", "max_output_tokens"})
_ROLES: Final = frozenset({"user", "assistant", "system", "developer"})
_TEXT_PARTS: Final = frozenset({"input_text", "output_text", "text"})


def chat_body(params: dict[str, Any], model: str, *, max_tokens_key: str) -> dict[str, Any]:
    """The body of a chat completions request that asks what ``params`` ask. Raises ValueError for what chat cannot say."""
    body: dict[str, Any] = {"model": model, "messages": messages_of(params)}
    body.update({key: params[key] for key in _SAME if key in params})
    if "max_output_tokens" in params:
        body[max_tokens_key] = params["max_output_tokens"]
    if "top_logprobs" in params:
        body.update(logprobs=True, top_logprobs=params["top_logprobs"])
    if params.get("tools"):
        body["tools"] = [_tool(tool) for tool in params["tools"]]
        if "tool_choice" in params:
            body["tool_choice"] = _tool_choice(params["tool_choice"])
    if "reasoning" in params:
        body.update(_reasoning(params["reasoning"]))
    if "text" in params:
        body.update(_text_format(params["text"]))
    return body


def messages_of(params: dict[str, Any]) -> list[dict[str, Any]]:
    """The conversation as chat messages; ``instructions`` come first as a system message."""
    messages: list[dict[str, Any]] = []
    if "instructions" in params:
        messages.append({"role": "system", "content": params["instructions"]})
    given = params["input"]
    items: list[Any] = [{"role": "user", "content": given}] if isinstance(given, str) else given
    for position, item in enumerate(items):
        where = f"responses_create_params.input[{position}]"
        if not isinstance(item, dict):
            raise ValueError(f"{where} is not an object")  # noqa: TRY004 - data, not a caller's mistake
        _add_item(messages, item, where)
    return messages


def _add_item(messages: list[dict[str, Any]], item: dict[str, Any], where: str) -> None:
    match item.get("type", "message"):
        case "message":
            if item.get("role") not in _ROLES:
                raise ValueError(f"{where}.role is {item.get('role')!r}; it must be one of {', '.join(sorted(_ROLES))}")
            messages.append({"role": item["role"], "content": _content(item.get("content"), where)})
        case "function_call":
            _add_call(messages, item, where)
        case "function_call_output":
            content = _content(item.get("output"), where)
            messages.append({"role": "tool", "tool_call_id": _text_of(item, "call_id", where), "content": content})
        case "reasoning":
            # Chat completions take no earlier reasoning; servers rebuild their templates without it.
            return
        case other:
            raise ValueError(f"{where}.type {other!r} has no counterpart in chat completions")


def _add_call(messages: list[dict[str, Any]], item: dict[str, Any], where: str) -> None:
    function = {"name": _text_of(item, "name", where), "arguments": _text_of(item, "arguments", where)}
    call = {"id": _text_of(item, "call_id", where), "type": "function", "function": function}
    # Calls of one turn belong to one assistant message, together with what the assistant said before them.
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    messages[-1].setdefault("tool_calls", []).append(call)


def _text_of(item: dict[str, Any], key: str, where: str) -> str:
    if not isinstance(item.get(key), str):
        raise ValueError(f"{where}.{key} must be a text")  # noqa: TRY004 - data
    return item[key]


def _content(content: Any, where: str) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise ValueError(f"{where}.content must be a text or a list of parts")
    parts = [_part(part, where) for part in content]
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _part(part: Any, where: str) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in _TEXT_PARTS and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        image = {"url": part["image_url"], **({"detail": part["detail"]} if part.get("detail") else {})}
        return {"type": "image_url", "image_url": image}
    raise ValueError(f"{where}.content has a part of type {kind!r}, which chat completions cannot carry")


def _tool(tool: Any) -> dict[str, Any]:
    if not isinstance(tool, dict) or tool.get("type") != "function" or not isinstance(tool.get("name"), str):
        raise ValueError("responses_create_params.tools: chat completions know tools of type 'function' with a name only")
    keys = ("name", "description", "parameters", "strict")
    return {"type": "function", "function": {key: tool[key] for key in keys if tool.get(key) is not None}}


def _tool_choice(choice: Any) -> Any:
    if choice in ("auto", "none", "required"):
        return choice
    if isinstance(choice, dict) and choice.get("type") == "function" and isinstance(choice.get("name"), str):
        return {"type": "function", "function": {"name": choice["name"]}}
    raise ValueError("responses_create_params.tool_choice must be auto, none, required or a function by name")


def _reasoning(reasoning: Any) -> dict[str, Any]:
    given = {key: value for key, value in reasoning.items() if value is not None} if isinstance(reasoning, dict) else None
    if given is None or given.keys() - {"effort"}:
        raise ValueError("responses_create_params.reasoning: chat completions know effort only")
    return {"reasoning_effort": given["effort"]} if given else {}


def _text_format(text: Any) -> dict[str, Any]:
    wanted = text.get("format") if isinstance(text, dict) and not text.keys() - {"format"} else None
    match wanted:
        case {"type": "text"}:
            return {}
        case {"type": "json_object"}:
            return {"response_format": {"type": "json_object"}}
        case {"type": "json_schema", "name": _, "schema": _}:
            schema = {key: value for key, value in wanted.items() if key != "type" and value is not None}
            return {"response_format": {"type": "json_schema", "json_schema": schema}}
        case _:
            raise ValueError("responses_create_params.text must be a format of type text, json_object or json_schema")

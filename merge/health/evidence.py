"""What checks look at: turns and model calls of one row in one shape, wherever they were recorded. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

#: Longest text taken from a row into a report, in characters.
_TEXT_LIMIT: Final = 200
#: A count beyond this is no count of tokens.
_MOST_TOKENS: Final = 1 << 40
#: Reasons to stop that mean the token limit.
LENGTH_REASONS: Final = frozenset({"length", "max_output_tokens", "max_tokens"})
_FAILED_STATUSES: Final = frozenset({"failed", "error", "cancelled"})
_CONTENT_KEYS: Final = frozenset(
    {"text", "content", "output_text", "answer", "refusal", "encrypted_content", "reasoning", "reasoning_content", "summary"}
)
_OTHER_TOOLS: Final = frozenset({"tool_use", "mcp_list_tools", "mcp_approval_request"})
#: Items of a response that answer the model.
_INPUT_TYPES: Final = frozenset({"function_call_output", "custom_tool_call_output", "mcp_approval_response"})
_INPUT_ROLES: Final = frozenset({"user", "system", "developer", "tool"})


class Turn(msgspec.Struct, frozen=True, gc=False):
    """One step of an agent."""

    number: object
    has_message: bool
    has_tool_call: bool
    has_call_reference: bool = False

    @property
    def has_activity(self) -> bool:
        return self.has_message or self.has_tool_call or self.has_call_reference


class Call(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request to a model. None: not recorded."""

    position: int
    call_id: str | None = None
    response_id: str | None = None
    model: tuple[str, str] | None = None
    started_at: float | None = None
    status_code: int | None = None
    response_status: str | None = None
    error: str | None = None
    finish_reason: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    #: None: the answer was not captured.
    has_content: bool | None = None

    @property
    def is_failed(self) -> bool:
        bad_status = self.status_code is not None and self.status_code >= 400
        return bad_status or self.error is not None or self.response_status in _FAILED_STATUSES

    @property
    def is_successful(self) -> bool:
        return not self.is_failed and (self.status_code is None or 200 <= self.status_code < 400)

    @property
    def name(self) -> str:
        """How a report calls it."""
        return self.call_id or self.response_id or str(self.position)

    @property
    def identity(self) -> tuple[object, ...] | None:
        """Equal for the same call recorded twice; None when nothing tells."""
        if self.call_id:
            return ("call", self.call_id)
        return ("response", self.model, self.response_id) if self.response_id else None


class Bindings(msgspec.Struct, frozen=True, gc=False):
    """Which captured calls the references of a trajectory mean."""

    references: int = 0
    matched: tuple[Call, ...] = ()
    missing: tuple[str, ...] = ()
    doubled: tuple[tuple[str, int], ...] = ()

    @property
    def is_complete(self) -> bool:
        return self.references > 0 and not self.missing and not self.doubled


class Evidence(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Everything a row shows. None: it cannot show it, so that checks which need it are not evaluated."""

    #: Turns of the agent; for a row with only a response, that response as one turn.
    turns: tuple[Turn, ...] | None = None
    has_trajectory: bool = False
    #: Every captured call, of judges too.
    captured: tuple[Call, ...] | None = None
    #: Calls that belong to turns or invocations of the agent, and to turns alone.
    owned: Bindings | None = None
    of_turns: Bindings | None = None
    #: Contradictions that the recorder saw itself: (kind, call).
    contradictions: tuple[tuple[str, str], ...] = ()
    #: Whether every call of every turn is known.
    is_call_scope_complete: bool = False
    #: Tokens (prompt, completion) by the response's usage.
    usage: tuple[int | None, int | None] = (None, None)
    #: Why what was recorded cannot be read.
    unreadable: str | None = None


def short(value: object) -> str:
    """``value`` as text that fits a report; lone surrogates are replaced."""
    text = value if isinstance(value, str) else str(value)
    if len(text) <= _TEXT_LIMIT and text.isascii():
        return text
    cut = text if len(text) <= _TEXT_LIMIT else text[: _TEXT_LIMIT - 1] + "…"
    return cut.encode("utf-8", "replace").decode()


def optional_text(value: object) -> str | None:
    """``short`` of a text that says something; None otherwise."""
    return short(value) if isinstance(value, str) and value else None


def tokens(value: object) -> int | None:
    """A count of tokens; None for anything else."""
    # A bool is an int, too, but of another type.
    return value if type(value) is int and 0 <= value <= _MOST_TOKENS else None


def usage_tokens(usage: object) -> tuple[int | None, int | None]:
    """Prompt and completion tokens of a usage object, in either of its two spellings."""
    if not isinstance(usage, dict):
        return None, None
    prompt = usage.get("input_tokens", usage.get("prompt_tokens"))
    return tokens(prompt), tokens(usage.get("output_tokens", usage.get("completion_tokens")))


def is_tool_call(item: object) -> bool:
    """Whether ``item``, a part of an answer or a list of parts, asks for a tool."""
    if isinstance(item, dict):
        kind = item.get("type")
        # Every such type ends like this (function_call, web_search_call, ...), and new ones keep coming.
        return (isinstance(kind, str) and (kind.endswith("_call") or kind in _OTHER_TOOLS)) or bool(item.get("tool_calls"))
    return isinstance(item, list) and any(map(is_tool_call, item))


def says_something(value: object) -> bool:
    """Whether ``value`` holds text that is not blank, in any of the places where models put it."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            if item and not item.isspace():
                return True
        elif isinstance(item, dict):
            stack += [item[key] for key in item if key in _CONTENT_KEYS]
        elif isinstance(item, list):
            stack += item
    return False


def answer_turn(response: dict[str, Any]) -> Turn:
    """A whole Responses or Chat Completions object as one turn; text, a refusal or a visible thought is a message."""
    items = _own_items(response.get("output"))
    choices = response.get("choices")
    messages = [choice.get("message") for choice in _dicts(choices)] if choices else []
    has_message = says_something(items) or says_something(_other_places(response, messages))
    return Turn(0, has_message, is_tool_call(items) or is_tool_call(messages))


def _other_places(response: dict[str, Any], messages: list[Any]) -> list[Any]:
    # Not the object as a whole: its `text` and `reasoning` are settings that the request had.
    texts = [choice.get("text") for choice in _dicts(response.get("choices"))]
    return [response.get("output_text"), response.get("content"), texts, messages]


def _own_items(output: object) -> list[object]:
    """What the model wrote; results of tools stand in the same list and are not its own."""
    items = output if isinstance(output, list) else [output]
    return [item for item in items if not (isinstance(item, dict) and _is_input(item))]


def _is_input(item: dict[str, Any]) -> bool:
    # A list or an object there is neither, and cannot be looked for in a set.
    kind, role = item.get("type"), item.get("role")
    return (isinstance(kind, str) and kind in _INPUT_TYPES) or (isinstance(role, str) and role in _INPUT_ROLES)


def _dicts(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []

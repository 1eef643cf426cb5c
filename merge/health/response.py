"""Evidence of a row that has nothing but its response: one turn, one call. Pure."""

from __future__ import annotations

from typing import Any

from merge.health.evidence import (
    Bindings,
    Call,
    Evidence,
    Turn,
    answer_turn,
    optional_text,
    short,
    usage_tokens,
)


def response_evidence(response: object) -> Evidence:
    """What ``response`` shows; nothing when it is no object."""
    if not isinstance(response, dict):
        return Evidence()
    usage = usage_tokens(response.get("usage"))
    turn = answer_turn(response)
    return Evidence(turns=(turn,), owned=Bindings(1, (_call(response, turn, usage),)), usage=usage)


def _call(response: dict[str, Any], turn: Turn, usage: tuple[int | None, int | None]) -> Call:
    error = response.get("error")
    return Call(
        position=0,
        response_id=optional_text(response.get("id")),
        response_status=optional_text(response.get("status")),
        error=_error_name(error) if error else None,
        finish_reason=_finish_reason(response),
        tokens_in=usage[0],
        tokens_out=usage[1],
        has_content=turn.has_message or turn.has_tool_call,
    )


def _error_name(error: object) -> str:
    if isinstance(error, dict):
        return short(error.get("code") or error.get("message") or "error")
    return short(error)


def _finish_reason(response: dict[str, Any]) -> str | None:
    details = response.get("incomplete_details")
    if isinstance(details, dict):
        return optional_text(details.get("reason"))
    choices = response.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return optional_text(first.get("finish_reason")) if isinstance(first, dict) else None

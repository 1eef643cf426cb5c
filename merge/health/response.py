"""Evidence of a row that has nothing but its response: one turn, one call. Pure."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

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

#: All that decides whether the checks of such a row find something, and which of them lack their evidence.
Pattern: TypeAlias = tuple[bool, bool, str | None, str | None, str | None, int | None, int | None]


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What a response shows."""

    response_id: object
    turn: Turn
    status: str | None
    error: str | None
    finish_reason: str | None
    #: Tokens (prompt, completion).
    usage: tuple[int | None, int | None]

    def pattern(self) -> Pattern:
        """Equal for answers that differ in nothing but their name and in how many tokens they count, none or some."""
        prompt, completion = self.usage
        turn = self.turn
        return (
            turn.has_message,
            turn.has_tool_call,
            self.status,
            self.error,
            self.finish_reason,
            prompt and 1,
            completion and 1,
        )


def read_answer(response: dict[str, Any]) -> Answer:
    """What ``response`` shows."""
    error = response.get("error")
    return Answer(
        response.get("id"),
        answer_turn(response),
        optional_text(response.get("status")),
        _error_name(error) if error else None,
        _finish_reason(response),
        usage_tokens(response.get("usage")),
    )


def answer_evidence(answer: Answer) -> Evidence:
    """``answer`` as one turn that is one call."""
    turn, (prompt, completion) = answer.turn, answer.usage
    call = Call(
        position=0,
        response_id=optional_text(answer.response_id),
        response_status=answer.status,
        error=answer.error,
        finish_reason=answer.finish_reason,
        tokens_in=prompt,
        tokens_out=completion,
        has_content=turn.has_message or turn.has_tool_call,
    )
    return Evidence(turns=(turn,), owned=Bindings(1, (call,)), usage=answer.usage)


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

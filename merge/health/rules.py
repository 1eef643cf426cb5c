"""The checks of one row as pure functions: findings, an empty list for none, or None where the evidence is missing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from merge.health.checks import Check
from merge.health.evidence import LENGTH_REASONS, Call, Evidence, short


class Finding(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One thing that is wrong, where, and by which figures. Holds no text that a model wrote."""

    check: str
    detail: dict[str, Any]
    locator: dict[str, Any] | None = None


Rule: TypeAlias = Callable[[Evidence], list[Finding] | None]


def missing_agent_turns(evidence: Evidence) -> list[Finding] | None:
    """No turn shows any activity of a model."""
    if not evidence.has_trajectory or evidence.turns is None:
        return None
    if any(turn.has_activity for turn in evidence.turns):
        return []
    return [Finding(Check.MISSING_AGENT_TURNS, {"turns": len(evidence.turns)})]


def ended_on_failed_call(evidence: Evidence) -> list[Finding] | None:
    """The last call to some model failed: the reward may be a zero of the infrastructure, not of the model."""
    if evidence.captured is None:
        return None
    found: list[Finding] = []
    for model, calls in _by_model(evidence.captured).items():
        last = _failed_last(calls)
        if last is not None:
            detail = {
                "model_ref": "/".join(model) if model else None,
                "status": last.status_code,
                "error_category": last.error,
                "observed_calls": len(calls),
                "successful_calls": sum(call.is_successful for call in calls),
            }
            found.append(Finding(Check.ENDED_ON_FAILED_CALL, detail, _place(last)))
    return found


def hollow_turns(evidence: Evidence) -> list[Finding] | None:
    """A turn with neither a message nor a tool call."""
    if evidence.turns is None:
        return None
    hollow = [turn for turn in evidence.turns if not turn.has_message and not turn.has_tool_call]
    reason = {"reason": "neither a message nor a tool call"}
    return [Finding(Check.HOLLOW_TURN, reason, {"turn": _number(turn.number)}) for turn in hollow]


def zero_completion_tokens(evidence: Evidence) -> list[Finding] | None:
    """A call that says that it completed no token."""
    calls = _owned(evidence)
    if calls is None:
        return None
    detail = {"completion_tokens": 0}
    return [Finding(Check.ZERO_COMPLETION_TOKENS, detail, _place(call)) for call in calls if call.tokens_out == 0]


def missing_token_counts(evidence: Evidence) -> list[Finding] | None:
    """A call without a count of its prompt or its completion."""
    calls = _owned(evidence)
    if calls is None:
        return None
    found: list[Finding] = []
    for call in calls:
        counts = (("prompt_tokens", call.tokens_in), ("completion_tokens", call.tokens_out))
        missing = [name for name, count in counts if count is None]
        if missing:
            found.append(Finding(Check.MISSING_TOKEN_COUNTS, {"missing": missing}, _place(call)))
    return found


def capture_mismatch(evidence: Evidence) -> list[Finding] | None:
    """Turns refer to calls that were captured never, twice, or for somebody else."""
    bindings = evidence.owned
    if not evidence.has_trajectory or bindings is None or not (bindings.references or evidence.contradictions):
        return None
    details: dict[tuple[str, str], dict[str, Any]] = {}
    for name in bindings.missing:
        details["missing_captured_call", name] = {}
    for name, count in bindings.doubled:
        details["duplicated_captured_call", name] = {"count": count}
    for kind, name in evidence.contradictions:
        details.setdefault((kind, name), {"said_by": "recorder"})
    return [
        Finding(Check.CAPTURE_MISMATCH, {"kind": kind, **more}, {"call_id": name}) for (kind, name), more in details.items()
    ]


def failed_calls(evidence: Evidence) -> list[Finding] | None:
    """A call that ended with an HTTP error, an error category or a failed status."""
    calls = _owned(evidence)
    if calls is None:
        return None
    is_whole = evidence.owned is not None and evidence.owned.is_complete
    return [
        Finding(
            Check.CALL_FAILED,
            {
                "status": call.status_code,
                "response_status": call.response_status,
                "error_category": call.error,
                "terminal": is_whole and call is calls[-1],
            },
            _place(call),
        )
        for call in calls
        if call.is_failed
    ]


def token_count_mismatch(evidence: Evidence) -> list[Finding] | None:
    """The response's usage is not the sum over its calls."""
    bindings = evidence.of_turns
    if bindings is None or not evidence.is_call_scope_complete or not bindings.is_complete or None in evidence.usage:
        return None
    sums = [_sum(call.tokens_in for call in bindings.matched), _sum(call.tokens_out for call in bindings.matched)]
    if None in sums:
        return None
    if tuple(sums) == evidence.usage:
        return []
    names = ("transcript_prompt", "transcript_completion", "capture_prompt", "capture_completion")
    return [Finding(Check.TOKEN_COUNT_MISMATCH, dict(zip(names, (*evidence.usage, *sums), strict=True)))]


def runaway_generations(evidence: Evidence) -> list[Finding] | None:
    """A call that used up its token limit and said nothing."""
    calls = _owned(evidence)
    if calls is None:
        return None
    cut = [call for call in calls if call.finish_reason in LENGTH_REASONS]
    if any(call.has_content is None for call in cut):
        return None
    return [
        Finding(Check.RUNAWAY_GENERATION, {"finish_reason": call.finish_reason}, _place(call))
        for call in cut
        if not call.has_content
    ]


#: Checks that look at one row's evidence. The other three need the line itself or all rows.
RULES: Final[Mapping[Check, Rule]] = {
    Check.MISSING_AGENT_TURNS: missing_agent_turns,
    Check.ENDED_ON_FAILED_CALL: ended_on_failed_call,
    Check.HOLLOW_TURN: hollow_turns,
    Check.ZERO_COMPLETION_TOKENS: zero_completion_tokens,
    Check.MISSING_TOKEN_COUNTS: missing_token_counts,
    Check.CAPTURE_MISMATCH: capture_mismatch,
    Check.CALL_FAILED: failed_calls,
    Check.TOKEN_COUNT_MISMATCH: token_count_mismatch,
    Check.RUNAWAY_GENERATION: runaway_generations,
}


def ends_on_failure(calls: Sequence[Call]) -> bool:
    """Whether the last call to any model failed."""
    return any(_failed_last(chain) is not None for chain in _by_model(calls).values())


def _owned(evidence: Evidence) -> tuple[Call, ...] | None:
    return evidence.owned.matched if evidence.owned is not None and evidence.owned.matched else None


def _by_model(calls: Sequence[Call]) -> dict[tuple[str, str] | None, list[Call]]:
    # A judge that answers after the policy's last failed call must not look like its recovery.
    chains: dict[tuple[str, str] | None, list[Call]] = defaultdict(list)
    for call in calls:
        chains[call.model].append(call)
    return chains


def _failed_last(calls: Sequence[Call]) -> Call | None:
    """The last of ``calls`` to one model when it failed. Without times only calls that all failed have a known end."""
    if all(call.is_failed for call in calls):
        return calls[-1]
    if any(call.started_at is None for call in calls):
        return None
    last = max(calls, key=lambda call: (call.started_at or 0.0, call.position))
    return last if last.is_failed else None


def _place(call: Call) -> dict[str, Any]:
    return {"call_id": call.name}


def _number(value: object) -> int | str:
    return value if isinstance(value, int) and abs(value) < 1 << 31 else short(value)


def _sum(counts: Any) -> int | None:
    values = list(counts)
    return None if None in values else sum(values)

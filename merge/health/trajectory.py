"""Evidence of a row with ``ng_trajectory``: turns, captured model calls, and which calls the turns mean. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, count
from typing import Any, Final, NamedTuple

from merge.health.evidence import (
    Bindings,
    Call,
    Evidence,
    Turn,
    answer_turn,
    is_tool_call,
    optional_text,
    says_something,
    short,
    tokens,
    usage_tokens,
)

_INCOMPLETE_CALLS: Final = frozenset(
    {
        "model_calls_unavailable",
        "model_call_capture_incomplete",
        "model_call_capture_records_unreadable",
        "model_call_capture_unreadable",
    }
)
_CONTRADICTIONS: Final = {
    "model_call_reference_unmatched": "missing_captured_call",
    "model_call_reference_ambiguous": "duplicated_captured_call",
    "model_call_reference_conflict": "conflicting_call_ownership",
}


class _Reference(NamedTuple):
    """How a turn or an invocation names a call."""

    call_id: str | None
    model: tuple[str, str] | None
    response_id: str | None

    @property
    def name(self) -> str:
        return self.call_id or self.response_id or ""


def trajectory_evidence(trajectory: object, response: object) -> Evidence:
    """What ``trajectory`` shows. One that cannot be read shows nothing, and says why."""
    try:
        return _evidence(trajectory, response)
    except ValueError as error:
        return Evidence(unreadable=short(error))


def _evidence(trajectory: object, response: object) -> Evidence:
    if not isinstance(trajectory, dict):
        raise ValueError("ng_trajectory is not an object")  # noqa: TRY004 - a finding, not a mistake of the caller
    gaps = _objects(trajectory, "gaps")
    codes = set(map(_code, gaps))
    if "trajectory_projection_failed" in codes:
        return Evidence()
    calls = tuple(_call(position, raw) for position, raw in enumerate(_objects(trajectory, "model_calls")))
    turns = _objects(trajectory, "turns")
    references = [_references(raw) for raw in turns]
    of_turns = list(dict.fromkeys(chain.from_iterable(references)))
    of_invocations = chain.from_iterable(map(_references, _objects(trajectory, "invocations")))
    owned = list(dict.fromkeys((*of_turns, *of_invocations)))
    is_capture_whole = codes.isdisjoint(_INCOMPLETE_CALLS)
    index = _Index(calls)
    return Evidence(
        turns=None if "turns_unavailable" in codes else tuple(map(_turn, count(), turns, references)),
        has_trajectory=True,
        captured=calls if is_capture_whole and calls else None,
        owned=index.bind(owned) if is_capture_whole else None,
        of_turns=index.bind(of_turns) if is_capture_whole else None,
        contradictions=_contradictions(gaps),
        is_call_scope_complete="turn_model_call_scope_incomplete" not in codes,
        usage=usage_tokens(response.get("usage")) if isinstance(response, dict) else (None, None),
    )


def _objects(parent: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """The objects in list ``key`` of ``parent``. Raises ValueError for any other shape; absent and null are empty."""
    value = parent.get(key) or []
    if not isinstance(value, list) or not set(map(type, value)) <= {dict}:
        raise ValueError(f"ng_trajectory.{key} is not a list of objects")
    return value


def _object(parent: dict[str, Any], key: str) -> dict[str, Any]:
    value = parent.get(key)
    return value if isinstance(value, dict) else {}


def _turn(position: int, raw: dict[str, Any], references: Sequence[_Reference]) -> Turn:
    answer = raw.get("answer")
    return Turn(
        raw.get("turn_no", position),
        says_something(answer) or says_something(raw.get("reasoning_content")),
        is_tool_call(answer),
        bool(references),
    )


def _call(position: int, raw: dict[str, Any]) -> Call:
    metadata, counts, response = _object(raw, "response_metadata"), _object(raw, "token_stats"), raw.get("response")
    started, status = raw.get("started_at"), metadata.get("status_code")
    return Call(
        position=position,
        call_id=optional_text(raw.get("model_call_id")),
        response_id=optional_text(metadata.get("response_id")),
        model=_model(metadata.get("model_ref")),
        started_at=started if isinstance(started, int | float) else None,
        status_code=status if isinstance(status, int) and 0 <= status < 1000 else None,
        response_status=optional_text(metadata.get("response_status")),
        error=optional_text(metadata.get("error_category")),
        finish_reason=optional_text(metadata.get("finish_reason")),
        tokens_in=tokens(counts.get("prompt_tokens")),
        tokens_out=tokens(counts.get("completion_tokens")),
        has_content=_has_content(response),
    )


def _has_content(response: object) -> bool | None:
    if response is None:
        return None
    if not isinstance(response, dict):
        return says_something(response)
    turn = answer_turn(response)
    return turn.has_message or turn.has_tool_call


def _model(value: object) -> tuple[str, str] | None:
    return (short(value.get("type")), short(value.get("name"))) if isinstance(value, dict) else None


def _references(item: dict[str, Any]) -> list[_Reference]:
    """The usable references of a turn or an invocation, in order."""
    found: list[_Reference] = []
    for raw in _objects(item, "model_calls"):
        model, response_id = _model(raw.get("model_ref")), optional_text(raw.get("response_id"))
        reference = _Reference(optional_text(raw.get("model_call_id")), model, response_id)
        if reference.call_id or (model and response_id):
            found.append(reference)
    return found


class _Index:
    """Captured calls by what references name them by."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._by_id: dict[str, list[Call]] = defaultdict(list)
        self._by_response: dict[tuple[tuple[str, str] | None, str], list[Call]] = defaultdict(list)
        for call in calls:
            if call.call_id:
                self._by_id[call.call_id].append(call)
            if call.model and call.response_id:
                self._by_response[call.model, call.response_id].append(call)

    def bind(self, references: Sequence[_Reference]) -> Bindings:
        matched: dict[int, Call] = {}
        missing: list[str] = []
        doubled: list[tuple[str, int]] = []
        for reference in references:
            found = self._find(reference)
            if not found:
                missing.append(reference.name)
            elif len(found) > 1:
                doubled.append((reference.name, len(found)))
            else:
                matched[found[0].position] = found[0]
        ordered = tuple(matched[position] for position in sorted(matched))
        return Bindings(len(references), ordered, tuple(missing), tuple(doubled))

    def _find(self, reference: _Reference) -> list[Call]:
        if reference.call_id is None:
            return self._by_response.get((reference.model, reference.response_id or ""), [])
        return [
            call
            for call in self._by_id.get(reference.call_id, [])
            if (reference.model is None or reference.model == call.model)
            and (reference.response_id is None or reference.response_id == call.response_id)
        ]


def _contradictions(gaps: Iterable[dict[str, Any]]) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    for gap in gaps:
        kind = _CONTRADICTIONS.get(_code(gap))
        if kind is not None:
            found.append((kind, short(str(gap.get("detail") or "unknown").rpartition(":")[2])))
    return tuple(found)


def _code(gap: dict[str, Any]) -> str:
    code = gap.get("code")
    return code if isinstance(code, str) else ""

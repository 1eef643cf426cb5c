"""``ng_trajectory`` 1.0 as it is read by the strict profile: known keys only, one completed agent, nothing missing. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from collector.formats import rows
from collector.text.counted import counted
from exporters.strict_rows import RowError

_ROOT: Final = frozenset(
    {"schema_version", "task_id", "rollout_id", "invocations", "turns", "model_calls", "tool_calls", "gaps"}
)
_INVOCATION: Final = frozenset(
    {
        "kind", "invocation_id", "parent_invocation_id", "spawned_by_tool_call_id", "status", "duration_ms", "error_type",
        "model_calls", "conversation",
    }
)  # fmt: skip
_TURN: Final = frozenset(
    {
        "invocation_id", "task_id", "rollout_id", "turn_no", "timestamp", "question", "answer", "reasoning_content", "resolved",
        "step_count", "model_calls",
    }
)  # fmt: skip
_CALL: Final = frozenset(
    {"model_call_id", "started_at", "completed_at", "duration_ms", "request", "response", "response_metadata", "token_stats"}
)
_METADATA: Final = frozenset(
    {
        "response_id", "model_ref", "model", "dialect", "status_code", "response_status", "finish_reason", "upstream_attempted",
        "response_source", "upstream_status_code", "local_response_reason", "error_category", "latency_ttft_ms",
    }
)  # fmt: skip
_TOKENS: Final = frozenset({"prompt_tokens", "completion_tokens", "reasoning_tokens", "total_tokens", "cached_tokens"})
_TOOL: Final = frozenset(
    {
        "kind", "invocation_id", "tool_call_id", "tool_name", "status", "started_at", "completed_at", "duration_ms",
        "timing_source", "error_type", "sandbox_id", "output",
    }
)  # fmt: skip
_REF: Final = frozenset({"model_call_id", "model_ref", "response_id"})
_OK_STATUS: Final = range(200, 300)


class Trajectory(NamedTuple):
    """What a row recorded of one agent."""

    root: Mapping[str, Any]
    invocation: Mapping[str, Any]
    turns: list[Mapping[str, Any]]
    calls: list[Mapping[str, Any]]
    tools: dict[str, Mapping[str, Any]]


def read_trajectory(value: Any, row: Mapping[str, Any]) -> Trajectory:
    """The trajectory in ``value``. Raises RowError for whatever the strict profile does not take."""
    root = _known(value, _ROOT, "ng_trajectory")
    if root.get("schema_version") != "1.0":
        raise RowError(f"ng_trajectory has schema_version {root.get('schema_version')!r}, not '1.0'")
    _check_rollout(root, row)
    if root.get("gaps"):
        raise RowError("ng_trajectory.gaps: the observation has gaps")
    invocation = _only_root(_list(root, "invocations"))
    turns = [_known(turn, _TURN, f"turns[{i}]") for i, turn in enumerate(_list(root, "turns"))]
    for number, turn in enumerate(turns, start=1):
        _check_turn(turn, number, root, invocation)
    calls = [_model_call(call, i) for i, call in enumerate(_list(root, "model_calls"))]
    return Trajectory(root, invocation, turns, calls, _tools(_list(root, "tool_calls"), invocation))


def call_of(trajectory: Trajectory, turn: Mapping[str, Any], where: str) -> int:
    """The position of the only model call of ``turn``. Raises RowError when there is none or more than one."""
    refs = _list(turn, "model_calls")
    if len(refs) != 1:
        raise RowError(f"{where}.model_calls: {counted(len(refs), 'captured model call')}, not exactly one")
    ref = _known(refs[0], _REF, f"{where}.model_calls[0]")
    found = [i for i, call in enumerate(trajectory.calls) if _is_meant(ref, call)]
    if len(found) != 1:
        raise RowError(f"{where}.model_calls[0]: {counted(len(found), 'captured model call')} fit it, not exactly one")
    return found[0]


def check_call(call: Mapping[str, Any], where: str, *, has_tool_calls: bool) -> None:
    """Raise RowError for a call that failed, broke off, contradicts what it gave, or counts what cannot be."""
    said = call["response_metadata"]
    status = said.get("status_code")
    if status is not None and status not in _OK_STATUS:
        raise RowError(f"{where}: the model call ended with status {status}")
    if said.get("error_category") is not None or said.get("response_status") in {"failed", "incomplete", "cancelled"}:
        raise RowError(f"{where}: the model call failed or was cut short")
    reason = said.get("finish_reason")
    if reason in {"length", "max_tokens", "max_output_tokens", "content_filter", "incomplete", "error"}:
        raise RowError(f"{where}: finish reason {reason!r}: the response is incomplete")
    if reason in {"tool_calls", "tool_use", "function_call"} and not has_tool_calls:
        raise RowError(f"{where}: finish reason {reason!r} contradicts a response without tool calls")
    if reason in {"stop", "end_turn", "stop_sequence"} and has_tool_calls:
        raise RowError(f"{where}: finish reason {reason!r} contradicts a response with tool calls")
    if not isinstance(said.get("model"), str | None):
        raise RowError(f"{where}: the model is a {type(said['model']).__name__}, not text")
    _check_tokens(call["token_stats"], where)


def _check_tokens(stats: Mapping[str, Any], where: str) -> None:
    for name, count in stats.items():
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 0):
            raise RowError(f"{where}: {name} is {count!r}")
    for part, whole in (("cached_tokens", "prompt_tokens"), ("reasoning_tokens", "completion_tokens")):
        if stats.get(part) is not None and stats.get(whole) is not None and stats[part] > stats[whole]:
            raise RowError(f"{where}: {part} is {stats[part]}, more than {whole} ({stats[whole]})")
    total, prompt, completion = (stats.get(key) for key in ("total_tokens", "prompt_tokens", "completion_tokens"))
    if total is not None and total < (prompt or 0) + (completion or 0):
        raise RowError(f"{where}: total_tokens is {total}, less than prompt and completion together")


def _check_rollout(root: Mapping[str, Any], row: Mapping[str, Any]) -> None:
    explicit = row.get(rows.ROLLOUT_ID)
    logical = explicit if isinstance(explicit, str) else f"{row[rows.TASK_INDEX]}-{row[rows.ROLLOUT_INDEX]}"
    attempt = row.get(rows.ATTEMPT_INDEX) or 0
    meant = f"{logical}-a{attempt}" if attempt else logical
    if root.get("rollout_id") not in {meant, logical}:
        raise RowError(f"ng_trajectory is of rollout {root.get('rollout_id')!r}, and the selected attempt is {meant!r}")


def _only_root(invocations: list[Any]) -> Mapping[str, Any]:
    found = [_known(entry, _INVOCATION, f"invocations[{i}]") for i, entry in enumerate(invocations)]
    if len(found) != 1:
        raise RowError(f"ng_trajectory.invocations: {counted(len(found), 'invocation')}, not exactly one root")
    if found[0].get("parent_invocation_id") is not None or found[0].get("spawned_by_tool_call_id") is not None:
        raise RowError("ng_trajectory.invocations[0]: a sub-agent, not a root")
    if found[0].get("status") != "completed" or found[0].get("error_type") is not None:
        raise RowError(f"ng_trajectory.invocations[0].status: {found[0].get('status')!r}, not 'completed'")
    return found[0]


def _check_turn(turn: Mapping[str, Any], number: int, root: Mapping[str, Any], invocation: Mapping[str, Any]) -> None:
    where = f"turns[{number - 1}]"
    if turn.get("turn_no") != number:
        raise RowError(f"{where}.turn_no: {turn.get('turn_no')!r}, not {number}")
    if turn.get("invocation_id") != invocation.get("invocation_id"):
        raise RowError(f"{where}.invocation_id: {turn.get('invocation_id')!r} is not the root's")
    for key in ("task_id", "rollout_id"):
        if turn.get(key) != root.get(key):
            raise RowError(f"{where}.{key}: {turn.get(key)!r} is not the trajectory's")


def _model_call(value: Any, index: int) -> Mapping[str, Any]:
    where = f"model_calls[{index}]"
    call = _known(value, _CALL, where)
    metadata = _known(call.get("response_metadata") or {}, _METADATA, f"{where}.response_metadata")
    if "token_stats" in call and call["token_stats"] is None:
        raise RowError(f"{where}.token_stats: null")
    stats = _known(call.get("token_stats") or {}, _TOKENS, f"{where}.token_stats")
    return {**call, "response_metadata": metadata, "token_stats": stats}


def _tools(values: list[Any], invocation: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for index, value in enumerate(values):
        tool = _known(value, _TOOL, f"tool_calls[{index}]")
        name = tool.get("tool_call_id")
        if not isinstance(name, str) or name in found:
            raise RowError(f"tool_calls[{index}].tool_call_id: {name!r} is missing or occurs twice")
        if tool.get("invocation_id") != invocation.get("invocation_id"):
            raise RowError(f"tool_calls[{index}].invocation_id: not the root's")
        found[name] = tool
    return found


def _is_meant(ref: Mapping[str, Any], call: Mapping[str, Any]) -> bool:
    if ref.get("model_call_id") is not None:
        return ref["model_call_id"] == call.get("model_call_id")
    said = call["response_metadata"]
    response = ref.get("response_id")
    return response is not None and response == said.get("response_id") and ref.get("model_ref") == said.get("model_ref")


def _known(value: Any, keys: frozenset[str], where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise RowError(f"{where}: a {type(value).__name__}, not an object")
    if not value.keys() <= keys:
        raise RowError(f"{where}: unknown fields would be lost: {', '.join(sorted(value.keys() - keys)[:5])}")
    return value


def _list(value: Mapping[str, Any], key: str) -> list[Any]:
    found = value.get(key)
    if found is None:
        return []
    if not isinstance(found, list):
        raise RowError(f"{key}: a {type(found).__name__}, not a list")
    return found

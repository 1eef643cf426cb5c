"""The profile ``response-to-atif-lossy-v1``: a trajectory from what every row has, its input and its response.

System, developer and user messages of the input become a step each; assistant turns of the input are copied context; the
response is one agent step: reasoning, texts, images (and sound, in v1.8), tool calls and their results, and usage as far as it
is reported. What is lost: timing, single model calls inside one response, files and other parts that the format does not know.
Nothing is invented; what has no place is counted by type under ``extra.gym_eval``. Text that is no Unicode (an unpaired
surrogate) is replaced, and the document says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from collector.formats import rows
from exporters.atif.documents import Agent, Content, Document, FinalMetrics, Step
from exporters.atif.items import EXTRA, Turn, as_content, joined, metrics_of, parts_of, type_of
from exporters.atif.profile import TRAJECTORY, Context, checked
from exporters.strict_rows import RowError

NAME: Final = "response-to-atif-lossy-v1"
_SOURCES: Final = {"system": "system", "developer": "system", "user": "user"}
#: Items of an input that an agent made or that answer it.
_AGENT_ITEMS: Final = frozenset({"reasoning", "function_call", "function_call_output"})


class LossyProfile:
    """Accepts any row with a response object."""

    name = NAME
    reads = "response"

    def accepts(self, row: Mapping[str, Any]) -> bool:
        """Whether there is a response object."""
        return isinstance(row.get("response"), Mapping)

    def convert(self, row: Mapping[str, Any], context: Context) -> Document:
        """The trajectory of ``row``. Raises RowError."""
        readable, replaced = readable_text(row)
        return checked(lambda: _document(readable, context, replaced))


def readable_text(value: Any) -> tuple[Any, int]:
    """``value`` with each string that is no Unicode mended by U+FFFD, and how many there were."""
    try:
        # The encoder sees any surrogate in a fraction of the time; what else it refuses costs a walk, no more.
        orjson.dumps(value)
    except TypeError:
        return _mended(value)
    return value, 0


def _mended(value: Any) -> tuple[Any, int]:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return _replaced(value), 1
        return value, 0
    if isinstance(value, Mapping):
        pairs = [(_mended(key), _mended(item)) for key, item in value.items()]
        return {key: item for (key, _), (item, _) in pairs}, sum(k + n for (_, k), (_, n) in pairs)
    if isinstance(value, list):
        items = [_mended(item) for item in value]
        return [item for item, _ in items], sum(n for _, n in items)
    return value, 0


def _replaced(text: str) -> str:
    return "".join("\ufffd" if "\ud800" <= sign <= "\udfff" else sign for sign in text)


def _document(row: Mapping[str, Any], context: Context, replaced: int) -> Document:
    response: Mapping[str, Any] = row["response"]
    params = row.get("responses_create_params")
    has_audio = context.schema_version != "ATIF-v1.7"
    prompt = _prompt_steps(params if isinstance(params, Mapping) else {}, has_audio=has_audio)
    drafts = [*prompt, _response_step(response, has_audio=has_audio)]
    steps = tuple(Step(step_id=number, **draft) for number, draft in enumerate(drafts, start=1))
    used = metrics_of(response.get("usage"))
    return Document(
        schema_version=context.schema_version,
        session_id=context.session_id,
        trajectory_id=f"{context.session_id}:{row[rows.TASK_INDEX]}:{row[rows.ROLLOUT_INDEX]}",
        agent=Agent(
            name=_agent_name(row) or context.agent_name,
            version=context.agent_version,
            model_name=_text(response.get("model")),
            tool_definitions=_tools(params),
        ),
        steps=steps,
        final_metrics=FinalMetrics(
            total_prompt_tokens=used.prompt_tokens if used else None,
            total_completion_tokens=used.completion_tokens if used else None,
            total_cached_tokens=used.cached_tokens if used else None,
            total_steps=len(steps),
        ),
        extra={EXTRA: _provenance(row, context, replaced)},
    )


def _prompt_steps(params: Mapping[str, Any], *, has_audio: bool) -> Iterator[dict[str, Any]]:
    instructions = params.get("instructions")
    if isinstance(instructions, str):
        yield {"source": "system", "message": instructions, "extra": {EXTRA: {"from": "instructions"}}}
    given = params.get("input")
    if isinstance(given, str):
        yield {"source": "user", "message": given}
        return
    turn: Turn | None = None
    for item in given if isinstance(given, list) else []:
        if _is_of_agent(item):
            turn = turn or Turn(has_audio)
            turn.add(item)
            continue
        if turn is not None:
            yield _copied(turn)
            turn = None
        yield _message_step(item, has_audio=has_audio)
    if turn is not None:
        yield _copied(turn)


def _is_of_agent(item: Any) -> bool:
    return type_of(item) in _AGENT_ITEMS or (isinstance(item, Mapping) and item.get("role") == "assistant")


def _message_step(item: Any, *, has_audio: bool) -> dict[str, Any]:
    role = item.get("role") if isinstance(item, Mapping) else None
    source = _SOURCES.get(role) if isinstance(role, str) else None
    if source is None:
        raise RowError(f"an input item of type {type_of(item)!r} and role {role!r} belongs to nobody")
    parts, omitted = parts_of(item.get("content"), has_audio=has_audio)
    extra: dict[str, Any] = {}
    if role == "developer":
        extra["role"] = role
    if omitted:
        extra["omitted"] = omitted
    message: Content = as_content(parts)
    return {"source": source, "message": message, "extra": {EXTRA: extra} if extra else None}


def _copied(turn: Turn) -> dict[str, Any]:
    return {**_turn_step(turn), "is_copied_context": True}


def _response_step(response: Mapping[str, Any], *, has_audio: bool) -> dict[str, Any]:
    output = response.get("output")
    if not isinstance(output, list):
        raise RowError("the response has no list of output items")
    turn = Turn(has_audio)
    for item in output:
        turn.add(item)
    return {
        **_turn_step(turn),
        "timestamp": _timestamp(response.get("created_at")),
        "model_name": _text(response.get("model")),
        "metrics": metrics_of(response.get("usage")),
    }


def _turn_step(turn: Turn) -> dict[str, Any]:
    return {
        "source": "agent",
        "message": turn.message,
        "reasoning_content": joined(turn.reasoning),
        "tool_calls": tuple(turn.calls) or None,
        "observation": turn.observation(),
        "extra": turn.extra() or None,
    }


def _provenance(row: Mapping[str, Any], context: Context, replaced: int) -> dict[str, Any]:
    response: Mapping[str, Any] = row["response"]
    found: dict[str, Any] = {
        "profile": NAME,
        "exporter": {"name": "atif", "version": context.exporter_version},
        "source": {
            "task_index": row[rows.TASK_INDEX],
            "rollout_index": row[rows.ROLLOUT_INDEX],
            "attempt_index": row.get(rows.ATTEMPT_INDEX, 0),
            "run_id": row.get(rows.RUN_ID),
            "response_id": response.get("id"),
            "response_status": response.get("status"),
        },
        "reward": row.get("reward"),
        "masked": row.get("mask_sample") is True,
    }
    if replaced:
        found["replaced_texts"] = replaced
    if row.get(TRAJECTORY) is not None:
        found["not_mapped"] = [TRAJECTORY]
    return found


def _agent_name(row: Mapping[str, Any]) -> str | None:
    reference = row.get("agent_ref")
    return _text(reference.get("name")) if isinstance(reference, Mapping) else None


def _tools(params: Any) -> tuple[dict[str, Any], ...] | None:
    tools = params.get("tools") if isinstance(params, Mapping) else None
    found = tuple(tool for tool in tools if isinstance(tool, dict)) if isinstance(tools, list) else ()
    return found or None


def _timestamp(value: Any) -> str | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        moment = datetime.fromtimestamp(value, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return moment.isoformat().replace("+00:00", "Z")


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None

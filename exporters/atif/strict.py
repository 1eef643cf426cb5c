"""The profile ``ng-trajectory-to-atif-v1``: what a row's own observation says, without loss, or a refusal with the reason.

The conversation of the only agent is split at the model calls that were observed; each becomes one step. Every part of the
observation is checked against the others, and everything that the format has no field for stands under ``extra.nemo_gym``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from collector.formats import rows
from collector.text.counted import agreeing, counted
from exporters.atif.documents import Agent, Document, FinalMetrics, Observation, Step, StepMetrics
from exporters.atif.lossy import readable_text
from exporters.atif.profile import TRAJECTORY, Context, checked
from exporters.atif.strict_items import EXTRA, Answer, content_of, kind_of, read_answer
from exporters.atif.trajectory import Trajectory, call_of, check_call, read_trajectory
from exporters.strict_rows import RowError

NAME: Final = "ng-trajectory-to-atif-v1"
_CALL_FIELDS: Final = ("model_call_id", "started_at", "completed_at", "duration_ms", "response_metadata", "token_stats")


class StrictProfile:
    """Accepts any row that recorded its conversation."""

    name = NAME
    reads = TRAJECTORY

    def accepts(self, row: Mapping[str, Any]) -> bool:
        """Whether there is an observation."""
        return row.get(TRAJECTORY) is not None

    def convert(self, row: Mapping[str, Any], context: Context) -> Document:
        """The trajectory of ``row``. Raises RowError."""
        if readable_text(row)[1]:
            raise RowError("a text has an unpaired surrogate, which is no Unicode")
        return checked(lambda: _document(read_trajectory(row.get(TRAJECTORY), row), row, context))


def _document(trajectory: Trajectory, row: Mapping[str, Any], context: Context) -> Document:
    conversation = trajectory.invocation.get("conversation")
    if not isinstance(conversation, list):
        raise RowError("invocations[0].conversation: not a list")
    prompt = _prompt(conversation)
    steps = [Step(step_id=number, **draft) for number, draft in enumerate(prompt, start=1)]
    used: set[int] = set()
    calls_so_far = 0
    for index, turn in enumerate(trajectory.turns):
        begin, end = _span(trajectory, conversation, index, len(prompt))
        answer = read_answer(conversation[begin:end], begin, trajectory.tools)
        calls_so_far += len(answer.calls)
        place = call_of(trajectory, turn, f"turns[{index}]")
        used.add(place)
        _check_turn(turn, conversation[begin:end], f"turns[{index}]", calls_so_far)
        check_call(trajectory.calls[place], f"turns[{index}]", has_tool_calls=bool(answer.calls))
        steps.append(_step(len(steps) + 1, answer, turn, trajectory.calls[place]))
    if not trajectory.turns or calls_so_far != len(trajectory.tools):
        told = f"{counted(len(trajectory.turns), 'turn')} with {counted(calls_so_far, 'tool call')}"
        raise RowError(f"{told}, {len(trajectory.tools):,} {agreeing(len(trajectory.tools), 'were')} recorded")
    surplus = [_recorded(call) for i, call in enumerate(trajectory.calls) if i not in used]
    return _assembled(trajectory, row, context, steps, surplus)


def _prompt(conversation: list[Any]) -> list[dict[str, Any]]:
    """The system and user messages before the agent's first item."""
    drafts: list[dict[str, Any]] = []
    for index, item in enumerate(conversation):
        where = f"conversation[{index}]"
        role = item.get("role") if kind_of(item, where) == "message" else None
        if role not in {"system", "user"}:
            if role == "developer":
                raise RowError(f"{where}: developer messages are not supported")
            return drafts
        identity = {"extra": {EXTRA: {"source_item_id": item["id"]}}} if item.get("id") else {}
        drafts.append({"source": role, "message": content_of(item.get("content"), where), **identity})
    return drafts


def _span(trajectory: Trajectory, conversation: list[Any], index: int, prompt: int) -> tuple[int, int]:
    """Where the answer of turn ``index`` begins, which is where its question ends, and where the next one does."""
    begin = _question(trajectory, conversation, index)
    if index == 0 and begin != prompt:
        raise RowError(f"turns[0].question: {counted(begin, 'item')}, and the agent's first item is number {prompt}")
    is_last = index + 1 == len(trajectory.turns)
    end = len(conversation) if is_last else _question(trajectory, conversation, index + 1)
    if end <= begin:
        raise RowError(f"turns[{index}]: the agent said nothing")
    return begin, end


def _question(trajectory: Trajectory, conversation: list[Any], index: int) -> int:
    question = trajectory.turns[index].get("question")
    if not isinstance(question, list) or not _same(question, conversation[: len(question)]):
        raise RowError(f"turns[{index}].question: not what the conversation was until then")
    return len(question)


def _check_turn(turn: Mapping[str, Any], items: list[Any], where: str, calls_so_far: int) -> None:
    said = [item for item in items if item.get("type") not in {"reasoning", "function_call_output"}]
    thought = [item for item in items if item.get("type") == "reasoning"]
    if not isinstance(turn.get("answer"), list) or not _same(turn["answer"], said):
        raise RowError(f"{where}.answer: not what the conversation says")
    reasoning = turn.get("reasoning_content")
    if reasoning is not None and not isinstance(reasoning, list):
        raise RowError(f"{where}.reasoning_content: not a list of items")
    if not _same(reasoning or [], thought):
        raise RowError(f"{where}.reasoning_content: not what the conversation says")
    if turn.get("step_count") != calls_so_far:
        told = f"{counted(calls_so_far, 'tool')} {agreeing(calls_so_far, 'were')} called by then"
        raise RowError(f"{where}.step_count: {turn.get('step_count')!r}, and {told}")


def _same(first: list[Any], second: list[Any]) -> bool:
    return first == second or [_bare(item) for item in first] == [_bare(item) for item in second]


def _bare(value: Any) -> Any:
    """``value`` without absent members: writers differ in whether they spell them out."""
    if isinstance(value, Mapping):
        return {key: _bare(item) for key, item in value.items() if item is not None and (key, item) != ("type", "message")}
    return [_bare(item) for item in value] if isinstance(value, list) else value


def _step(number: int, answer: Answer, turn: Mapping[str, Any], call: Mapping[str, Any]) -> Step:
    noted = {key: turn[key] for key in ("turn_no", "step_count", "resolved") if turn.get(key) is not None}
    extra: dict[str, Any] = {"turn": noted, "model_call": _recorded(call)}
    if answer.source_items:
        extra["source_items"] = answer.source_items
    return Step(
        step_id=number,
        source="agent",
        message="" if answer.message is None else answer.message,
        timestamp=_timestamp(turn.get("timestamp")),
        model_name=call["response_metadata"].get("model"),
        reasoning_content=answer.reasoning,
        tool_calls=tuple(answer.calls) or None,
        observation=Observation(results=tuple(answer.results)) if answer.results else None,
        metrics=_metrics(call["token_stats"]),
        llm_call_count=1,
        extra={EXTRA: extra},
    )


def _metrics(stats: Mapping[str, Any]) -> StepMetrics | None:
    found = {key: value for key, value in stats.items() if value is not None}
    extra = {key: found.pop(key) for key in ("reasoning_tokens", "total_tokens") if key in found}
    return StepMetrics(**found, extra=extra or None) if found or extra else None


def _recorded(call: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key in _CALL_FIELDS if (value := _present(call.get(key))) is not None}


def _present(value: Any) -> Any:
    return {key: item for key, item in value.items() if item is not None} if isinstance(value, Mapping) else value


def _timestamp(value: Any) -> str:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise RowError(f"a turn's timestamp is {value!r}")
    try:
        return datetime.fromtimestamp(value, UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError) as error:
        raise RowError(f"a turn's timestamp is {value!r}") from error


def _assembled(
    trajectory: Trajectory, row: Mapping[str, Any], context: Context, steps: list[Step], surplus: list[dict[str, Any]]
) -> Document:
    models = {step.model_name for step in steps if step.source == "agent"}
    extra: dict[str, Any] = {
        "exporter": {"name": "gym-eval", "version": context.exporter_version},
        "source": _source(trajectory, row),
        "conversion": {"profile": NAME, "status": "complete"},
    }
    if surplus:
        extra["surplus_model_calls"] = surplus
    reference = row.get("agent_ref")
    name = reference.get("name") if isinstance(reference, Mapping) else None
    return Document(
        schema_version=context.schema_version,
        session_id=context.session_id,
        trajectory_id=f"{context.session_id}:{row[rows.TASK_INDEX]}:{row[rows.ROLLOUT_INDEX]}",
        agent=Agent(
            name=name if isinstance(name, str) and name.strip() else context.agent_name,
            version=context.agent_version,
            model_name=models.pop() if len(models) == 1 else None,
        ),
        steps=tuple(steps),
        final_metrics=_final(steps),
        extra={EXTRA: extra},
    )


def _source(trajectory: Trajectory, row: Mapping[str, Any]) -> dict[str, Any]:
    found = {
        "format": TRAJECTORY,
        "schema_version": "1.0",
        "task_id": trajectory.root.get("task_id"),
        "rollout_id": trajectory.root.get("rollout_id"),
        "task_index": row[rows.TASK_INDEX],
        "rollout_index": row[rows.ROLLOUT_INDEX],
        "invocation_id": trajectory.invocation.get("invocation_id"),
        "invocation_status": trajectory.invocation.get("status"),
        "invocation_duration_ms": trajectory.invocation.get("duration_ms"),
    }
    return {key: value for key, value in found.items() if value is not None}


def _final(steps: list[Step]) -> FinalMetrics:
    """Sums over the steps; None for one that some step did not report its part of."""
    agent = [step for step in steps if step.source == "agent"]

    def total(name: str) -> int | None:
        parts: list[int | None] = [getattr(step.metrics, name) if step.metrics else None for step in agent]
        reported = [part for part in parts if part is not None]
        return sum(reported) if len(reported) == len(parts) else None

    return FinalMetrics(
        total_prompt_tokens=total("prompt_tokens"),
        total_completion_tokens=total("completion_tokens"),
        total_cached_tokens=total("cached_tokens"),
        total_steps=len(steps),
    )

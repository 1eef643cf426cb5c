"""From a reply of ``POST /run`` to what became of the attempt: completed with its grade, failed, or not to be recorded. Pure.

| the reply | becomes |
| --- | --- |
| a number as ``reward`` | completed; ``mask_sample`` makes it masked |
| no ``reward`` and ``execute_only: true``, or an episode's ``result`` without one | completed, unscored |
| ``_ng_failure_class`` | a failure of that class, terminal as stamped |
| an episode's ``failure`` | a failure of the class that its kind names, else ``environment_server_failed`` |
| ``_ng_no_persist`` without a class | omitted |
| anything else | ValueError: the reply is unusable |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from collector.agents.openai_responses import text_in
from collector.formats import rows
from collector.formats.failure_record import EpisodeFailure
from collector.outcome_checks import RESULT_KEYS, is_reward
from collector.outcomes import (
    REASON_LIMIT,
    Answer,
    Completed,
    Delivery,
    Failure,
    FailureClass,
    FailureSource,
    Omitted,
    ServedBy,
    Verdict,
)

#: Keys that only collectors write; an environment's result must not use them.
_COLLECTORS: Final = frozenset({"ng_trajectory", "ng_model_call_capture", "ng_perf"})
#: What NeMo Gym's collector stamps on a reply from the row it sent; the rest of a row is what the reply makes of it.
_STAMPS: Final = frozenset({rows.TASK_INDEX, rows.ROLLOUT_INDEX, rows.ROLLOUT_ID, "agent_ref", "task_source", "skills_ref"})
#: Failures whose answer can be judged again without asking for a new one.
_REJUDGED: Final = frozenset({FailureClass.JUDGE_FAILED.value, FailureClass.JUDGE_INVALID.value})


def outcome_of(reply: Any, served_by: ServedBy | None) -> Completed | Failure | Omitted:
    """What a flat row's decoded reply says. Raises ValueError with what is wrong with it."""
    if not isinstance(reply, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - data
    failure_class = reply.get(rows.FAILURE_CLASS)
    if failure_class is not None:
        return _stamped_failure(reply, str(failure_class), served_by)
    if reply.get(rows.NO_PERSIST):
        return Omitted(reason="the server asked not to record the attempt")
    if not isinstance(reply.get("response"), dict):
        raise ValueError("it has no response object")  # noqa: TRY004 - data
    if "reward" not in reply and reply.get("mask_sample") is not True and reply.get("execute_only") is not True:
        raise ValueError("it has no reward, and does not say execute_only")
    if "reward" in reply and reply.get("execute_only") is True:
        raise ValueError("it has a reward and says execute_only")
    return _completed(reply, served_by)


def episode_outcome_of(reply: Any, request: Mapping[str, Any], served_by: ServedBy | None) -> Completed | Failure:
    """What an episode's decoded reply says. Raises ValueError with what is wrong with it."""
    if not isinstance(reply, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - data
    for key, sent in (("episode_id", request["episode_id"]), ("task_id", request["task"]["task_id"])):
        if reply.get(key) != sent:
            raise ValueError(f"it answers {key} {reply.get(key)!r}, and {sent!r} was asked")
    result, failure = reply.get("result"), reply.get("failure")
    if (result is None) == (failure is None):
        raise ValueError("it has not exactly one of result and failure")
    if failure is not None:
        return _episode_failure(failure, served_by)
    if not isinstance(result, dict):
        raise ValueError("its result is no object")  # noqa: TRY004 - data
    if taken := sorted(key for key in result if key.startswith("_ng_") or key in _COLLECTORS):
        raise ValueError(f"its result uses keys that are reserved for collectors: {', '.join(taken)}")
    return _completed(result, served_by)


def _completed(reply: dict[str, Any], served_by: ServedBy | None) -> Completed:
    reward = reply.get("reward")
    if "reward" in reply and not is_reward(reward):
        raise ValueError(f"its reward is {str(reward)[:40]!r}, which is no finite number")
    masked = reply.get("mask_sample", False)
    if not isinstance(masked, bool):
        raise ValueError("its mask_sample is neither true nor false")  # noqa: TRY004 - data
    kind, reason = (_text(reply.get(key)) for key in ("failure_kind", "failure_reason"))
    verdict = Verdict(reward=reward, masked=masked, kind=kind, reason=reason, extra=_extra(reply))
    answer = _answer(reply.get("response"))
    return Completed(answer=answer, verdict=verdict, served_by=served_by, row_keys=_STAMPS)


def _answer(response: Any) -> Answer:
    if not isinstance(response, dict):
        return Answer(response={}, text="")
    output = response.get("output")
    text = text_in(output) if isinstance(output, list) else ""
    return Answer(response=response, text=text, truncated=rows.names_token_limit(response.get("incomplete_details")))


def _stamped_failure(reply: dict[str, Any], failure_class: str, served_by: ServedBy | None) -> Failure:
    response = reply.get("response")
    response = response if isinstance(response, dict) and response else None
    evidence = {
        key.removeprefix(rows.FAILURE_PREFIX): value
        for key, value in reply.items()
        if key.startswith(rows.FAILURE_PREFIX) and key not in rows.FAILURE_ALIASES
    }
    can_rejudge = failure_class in _REJUDGED
    if response is not None and not can_rejudge:
        # Kept to look at, under a name that nothing scores or judges.
        evidence["response"] = response
    told = (reply.get(key) for key in ("failure_reason", rows.FAILURE_MESSAGE, rows.FAILURE_JUDGE_ERROR, "error"))
    return Failure(
        failure_class=failure_class,
        kind=_text(reply.get("failure_kind")),
        reason=next((text for text in map(_text, told) if text), "the server gave no reason"),
        terminal=reply.get(rows.FAILURE_TERMINAL) is True,
        source=FailureSource.ENVIRONMENT,
        delivery=Delivery.DELIVERED,
        http_status=200,
        response=response if can_rejudge else None,
        reuse_deliverable=reply.get(rows.REUSE) is True,
        extra=_extra(reply),
        evidence=evidence,
        served_by=served_by,
    )


def _episode_failure(value: Any, served_by: ServedBy | None) -> Failure:
    if not isinstance(value, dict):
        raise ValueError("its failure is no object")  # noqa: TRY004 - data
    partial = value.get("partial_response")
    try:
        told = msgspec.convert({key: item for key, item in value.items() if key != "partial_response"}, EpisodeFailure)
    except msgspec.ValidationError as error:
        raise ValueError(f"its failure is malformed: {error}") from error
    if len(told.failure_reason) > REASON_LIMIT:
        raise ValueError(f"its failure is malformed: failure_reason is longer than {REASON_LIMIT} characters")
    return Failure(
        failure_class=told.failure_kind or FailureClass.ENVIRONMENT_SERVER_FAILED,
        kind=told.failure_kind,
        reason=told.failure_reason,
        terminal=told.terminal,
        stage=told.stage,
        source=FailureSource.ENVIRONMENT,
        delivery=Delivery.DELIVERED,
        http_status=200,
        evidence={"partial_response": partial} if partial is not None else {},
        served_by=served_by,
    )


def _extra(reply: Mapping[str, Any]) -> dict[str, Any]:
    """What the reply says beside its result."""
    return {
        key: value
        for key, value in reply.items()
        if key not in RESULT_KEYS and key not in _STAMPS and not key.startswith("_ng_") and key != rows.REUSE
    }


def _text(value: Any) -> str | None:
    return None if value is None else str(value)[:REASON_LIMIT]

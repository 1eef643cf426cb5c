"""One attempt from its materialized row to its outcome: the agent answers, the verifier grades, nothing escapes."""

from __future__ import annotations

import logging
from typing import Any

from collector.agents.base import Agent, AgentSettings
from collector.outcomes import (
    Answer,
    Completed,
    Delivery,
    Failure,
    FailureClass,
    FailureKind,
    Stage,
    Verdict,
    is_reward,
)
from collector.verifiers.base import Verifier, VerifierSettings, verdict_for_truncated

_log = logging.getLogger(__name__)


async def run_attempt(
    row: dict[str, Any], agent: Agent[AgentSettings], verifier: Verifier[VerifierSettings]
) -> Completed | Failure:
    """What became of one attempt. One task's failure, a bug of a plug-in included, is this task's failure only."""
    try:
        answer = await agent.answer(row)
    except Exception as error:  # noqa: BLE001 - a plug-in's bug fails its own rollout, never the run
        _log.exception("the agent raised for task %s", row.get("_ng_task_index"))
        return _bug(error, FailureKind.AGENT_RUN_ERROR, Stage.AGENT)
    if isinstance(answer, Failure):
        return answer
    truncated = verdict_for_truncated(answer)
    if truncated is not None:
        return Completed(answer=answer, verdict=truncated)
    try:
        verdict = await verifier.verify(row, answer)
    except Exception as error:  # noqa: BLE001 - the same
        _log.exception("the verifier raised for task %s", row.get("_ng_task_index"))
        return _bug(error, FailureKind.VERIFIER_ERROR, Stage.VERIFICATION)
    if isinstance(verdict, Failure):
        return verdict
    return _checked(answer, verdict)


def _checked(answer: Answer, verdict: Verdict) -> Completed | Failure:
    if verdict.reward is None or is_reward(verdict.reward):
        return Completed(answer=answer, verdict=verdict)
    return Failure(
        failure_class=FailureClass.AGENT_RUN_ERROR,
        kind=FailureKind.VERIFIER_ERROR,
        reason=f"the verifier gave {verdict.reward!r}, which is no reward",
        exception_type="InvalidRolloutResult",
        delivery=Delivery.DELIVERED,
        stage=Stage.VERIFICATION,
    )


def _bug(error: Exception, kind: FailureKind, stage: Stage) -> Failure:
    return Failure(
        failure_class=FailureClass.AGENT_RUN_ERROR,
        kind=kind,
        reason=f"{type(error).__name__}: {error}",
        exception_type=type(error).__name__,
        stage=stage,
    )

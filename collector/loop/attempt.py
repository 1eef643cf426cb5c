"""One attempt from its materialized row to its outcome: the agent answers, the verifier grades, nothing escapes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, Final, TypeVar

from collector.agents.base import Agent, AgentSettings
from collector.formats import rows
from collector.loop.time_limit import TimeLimit
from collector.outcome_checks import is_reward, shown, told
from collector.outcomes import (
    Answer,
    Completed,
    Delivery,
    Failure,
    FailureClass,
    FailureKind,
    Omitted,
    Stage,
    Verdict,
)
from collector.verifiers.base import Verifier, VerifierSettings, verdict_for_truncated

_log = logging.getLogger(__name__)

T = TypeVar("T")

#: What agents and verifiers may return, as tuples made once: a union of types is made anew each time it is written.
_ANSWERS: Final[tuple[type[Answer], type[Completed], type[Omitted], type[Failure]]] = (Answer, Completed, Omitted, Failure)
_VERDICTS: Final[tuple[type[Verdict], type[Failure]]] = (Verdict, Failure)
_NO_ANSWER: Final = (Failure, Omitted)
_WHO: Final = {Stage.AGENT: "agent", Stage.VERIFICATION: "verifier"}
_KINDS: Final = {Stage.AGENT: FailureKind.AGENT_RUN_ERROR, Stage.VERIFICATION: FailureKind.VERIFIER_ERROR}
#: Integers below are the same number as a float.
_EXACT: Final = 2**53


async def run_attempt(
    row: dict[str, Any], agent: Agent[AgentSettings], verifier: Verifier[VerifierSettings], *, limit_s: float
) -> Completed | Failure | Omitted:
    """What became of one attempt. One task's failure, a bug of a plug-in included, is this task's failure only.

    An attempt that takes longer than ``limit_s`` seconds, grading included, is given up as a failure.
    """
    stage = Stage.AGENT
    answer: Answer | Completed | Failure | Omitted | None = None
    limit = TimeLimit(limit_s)
    try:
        with limit:
            answer = await _sole(agent.answer(row), _ANSWERS)
            if isinstance(answer, _NO_ANSWER):
                return answer
            if isinstance(answer, Completed):
                return _checked(answer)
            truncated = verdict_for_truncated(answer)
            if truncated is not None:
                return Completed(answer=answer, verdict=truncated)
            stage = Stage.VERIFICATION
            verdict = await _sole(verifier.verify(row, answer), _VERDICTS)
    except Exception as error:  # noqa: BLE001 - a plug-in's bug fails its own rollout, never the run
        if isinstance(error, TimeoutError) and limit.is_over:
            return _kept(_too_long(limit_s, stage), answer, verifier)
        _log.exception("the %s raised for task %s", _WHO[stage], row.get(rows.TASK_INDEX))
        return _kept(_bug(error, stage), answer, verifier)
    return verdict if isinstance(verdict, Failure) else _checked(Completed(answer=answer, verdict=verdict))


async def _sole(call: Awaitable[T], kinds: tuple[type, ...]) -> T:
    """What ``call`` returns. Raises TypeError for a foreign value, RuntimeError where it would end more than this attempt."""
    try:
        value = await call
    except SystemExit as error:
        # Let through, it would end the whole run without a word, and with a code of the plug-in's own.
        raise RuntimeError(f"it ended itself ({told(error)})") from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # A plug-in's own cancelled task or scope; let through, it would end a worker of the collector without a word.
        raise RuntimeError("it was cancelled from within") from error
    if not isinstance(value, kinds):
        raise TypeError(f"it returned {type(value).__name__}, not {' or '.join(kind.__name__ for kind in kinds)}")
    return value


def _kept(failure: Failure, answer: object, verifier: Verifier[VerifierSettings]) -> Failure:
    """``failure`` with the answer that was being graded, where a verifier's answers are kept to be judged again."""
    if failure.stage is not Stage.VERIFICATION or not isinstance(answer, Answer) or not verifier.keeps_answers:
        return failure
    kind = FailureKind.JUDGE_FAILED
    return replace(failure, failure_class=FailureClass.JUDGE_FAILED, kind=kind, response=answer.response)


def _checked(done: Completed) -> Completed | Failure:
    reward = done.verdict.reward
    if reward is None or (is_reward(reward) and type(reward) in (int, float) and abs(reward) < _EXACT):
        return done
    if is_reward(reward):
        # A numpy scalar or a huge integer: the same number as the JSON type that every reader has.
        return replace(done, verdict=replace(done.verdict, reward=float(reward)))
    return Failure(
        failure_class=FailureClass.AGENT_RUN_ERROR,
        kind=FailureKind.VERIFIER_ERROR,
        reason=f"the verifier gave {shown(reward)}, which is no reward",
        exception_type="InvalidRolloutResult",
        delivery=Delivery.DELIVERED,
        stage=Stage.VERIFICATION,
    )


def _too_long(limit_s: float, stage: Stage) -> Failure:
    return Failure(
        failure_class=FailureClass.TIMEOUT_EXCEEDED,
        kind=FailureKind.AGENT_TIMEOUT if stage is Stage.AGENT else FailureKind.VERIFIER_ERROR,
        reason=f"the {_WHO[stage]} was not done when the attempt had taken {limit_s:g} s (timeouts.attempt_s)",
        exception_type="TimeoutError",
        stage=stage,
    )


def _bug(error: Exception, stage: Stage) -> Failure:
    return Failure(
        failure_class=FailureClass.AGENT_RUN_ERROR,
        kind=_KINDS[stage],
        reason=told(error),
        exception_type=type(error).__name__,
        stage=stage,
    )

"""The two plug-ins of a session that grades saved answers: who answers is a file, and who grades is the verifier asked for.

No agent is ever called: an answer is read, or there is none and the rollout has failed for good in the new run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Self

from collector.agents.base import Agent, AgentSettings
from collector.agents.openai_responses import answer_in
from collector.errors import CorruptArtifactError, GymEvalError, RefusedError, StorageError
from collector.formats import rows
from collector.formats.rollout_key import key_of
from collector.outcome_checks import is_reserved
from collector.outcomes import (
    Answer,
    Completed,
    Delivery,
    Failure,
    FailureClass,
    FailureKind,
    ServedBy,
    Stage,
    Verdict,
)
from collector.reverify.answers import Answers, Kind
from collector.settings import RunSettings
from collector.shard.invalid_judge import FLAG
from collector.stop import StopReason, StopRequest
from collector.verifiers.base import Verifier, VerifierSettings

#: The class of a rollout that has no answer to grade: nothing was asked, and nothing will be.
NOT_REVERIFIED: Final = "not_reverified"
#: Key of a regraded row: which attempt of which run gave the answer, and the reward it had.
ORIGIN: Final = "reverified"
#: The name under which the plug-in stands in settings; it cannot be asked for by name.
SAVED: Final = "saved_answers"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedAnswer(Answer):
    """An answer and the row it was saved in."""

    row: dict[str, Any]


class SavedAgent(Agent[AgentSettings]):
    """Answers with what is saved. With ``copies_results`` a result comes with its verdict, and nobody grades it.

    That an answer cannot be read is no outcome: ``stop`` is asked, and ``trouble`` tells why. Nor is, with ``is_own``, that it
    is not the one that was chosen: recorded in the run itself, it would be the last word on an answer that is still there.
    """

    Settings = AgentSettings

    def __init__(
        self,
        answers: Answers,
        reasons: dict[int, str],
        run: RunSettings,
        stop: StopRequest,
        *,
        copies_results: bool = False,
        is_own: bool = False,
    ) -> None:
        super().__init__(AgentSettings(type=SAVED), run)
        self.trouble: GymEvalError | None = None
        self._answers = answers
        self._reasons = reasons
        self._stop = stop
        self._copies_results = copies_results
        self._is_own = is_own

    async def answer(self, row: dict[str, Any]) -> Answer | Completed | Failure:
        """The saved answer to ``row``."""
        key = key_of(row[rows.TASK_INDEX], row[rows.ROLLOUT_INDEX])
        position = self._answers.find(key)
        try:
            saved = None if position is None else self._answers.row(position)
        except CorruptArtifactError as error:
            return self._interrupted(error) if self._is_own else _no_answer(str(error))
        except (StorageError, RefusedError) as error:
            return self._interrupted(error)
        if position is None or saved is None:
            return _no_answer(self._reasons.get(key, "no answer is saved"))
        try:
            answer = answer_in(saved.get("response"))
        except ValueError as error:
            return _no_answer(f"the saved response is unusable: {error}")
        if self._answers.kinds[position] == Kind.RESULT and self._copies_results:
            return Completed(answer=answer, verdict=_verdict_of(saved, row), served_by=_server_of(saved))
        return SavedAnswer(response=answer.response, text=answer.text, truncated=answer.truncated, row=saved)

    def _interrupted(self, error: GymEvalError) -> Failure:
        self.trouble = self.trouble or error
        # What serves the answers is gone: attempts in flight may end, and none of its own is recorded.
        self._stop.ask(StopReason.SERVICE_DIED)
        return Failure(
            failure_class=NOT_REVERIFIED,
            kind=FailureKind.SHUTDOWN,
            reason=str(error),
            delivery=Delivery.NOT_SENT,
        )


class Regrader(Verifier[VerifierSettings]):
    """Has saved answers graded by ``verifier``, and notes with each verdict where its answer came from."""

    Settings = VerifierSettings

    def __init__(self, verifier: Verifier[VerifierSettings], *, retries_invalid: bool, invalid_retryable: bool) -> None:
        super().__init__(verifier.settings)
        # As an instance: whether an answer has to be kept is for the verifier to say.
        self.keeps_answers = verifier.keeps_answers  # type: ignore[misc]
        self._verifier = verifier
        self._retries_invalid = retries_invalid
        self._invalid_retryable = invalid_retryable

    async def __aenter__(self) -> Self:
        await self._verifier.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._verifier.__aexit__(*exc)

    async def verify(self, row: dict[str, Any], answer: Answer) -> Verdict | Failure:
        """The verdict on ``answer``, with where it came from."""
        if not isinstance(answer, SavedAnswer):
            raise TypeError("only saved answers are graded again")
        verdict = await self._verifier.verify(row, answer)
        if isinstance(verdict, Failure):
            return verdict
        if self._retries_invalid and verdict.extra.get(FLAG) is True:
            return self._invalid(verdict, answer)
        return replace(verdict, extra={**verdict.extra, ORIGIN: _origin(answer.row)})

    def _invalid(self, verdict: Verdict, answer: SavedAnswer) -> Failure:
        is_final = not self._invalid_retryable
        return Failure(
            failure_class=FailureClass.PERMANENT if is_final else FailureClass.JUDGE_INVALID,
            kind=FailureKind.JUDGE_UNPARSEABLE,
            reason=verdict.reason or "the judge's answer could not be used",
            terminal=is_final,
            delivery=Delivery.DELIVERED,
            stage=Stage.VERIFICATION,
            response=answer.response,
            extra=verdict.extra,
        )


def _no_answer(reason: str) -> Failure:
    return Failure(failure_class=NOT_REVERIFIED, reason=reason, terminal=True, delivery=Delivery.NOT_SENT)


def _verdict_of(saved: dict[str, Any], row: dict[str, Any]) -> Verdict:
    """The verdict that a result row holds: its keys that neither belong to the task nor to our own books."""
    own = (key for key in saved if not is_reserved(key) and (key not in row or saved[key] != row[key]))
    extra = {key: saved[key] for key in own}
    kind, reason = saved.get("failure_kind"), saved.get("failure_reason")
    return Verdict(
        reward=saved.get("reward"),
        masked=saved.get("mask_sample") is True,
        kind=kind if isinstance(kind, str) else None,
        reason=reason if isinstance(reason, str) else None,
        extra=extra,
    )


def _server_of(saved: dict[str, Any]) -> ServedBy | None:
    server, kind = saved.get(rows.ENVIRONMENT_SERVER), saved.get(rows.RESULT_TYPE)
    if not isinstance(server, str) or not isinstance(kind, str):
        return None
    return ServedBy(server=server, result_type=kind, task_id=saved.get(rows.TASK_ID))


def _origin(saved: dict[str, Any]) -> dict[str, Any]:
    origin = {"run_id": saved.get(rows.RUN_ID), "attempt": saved.get(rows.ATTEMPT_INDEX, 0), "reward": saved.get("reward")}
    return {key: value for key, value in origin.items() if value is not None}

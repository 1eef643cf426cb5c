"""The contract of a verifier: a row and its answer in, a verdict or a failure out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, Self, TypeVar

from collector.outcomes import Answer, Failure, FailureKind, Verdict
from collector.registry import Registry
from collector.settings import StrictModel


class VerifierSettings(StrictModel):
    """Settings under ``verifier:``; ``type`` names the verifier."""

    type: str


S_co = TypeVar("S_co", bound=VerifierSettings, covariant=True)


class Verifier(ABC, Generic[S_co]):
    """Grades answers of one run. The collector enters it once, calls ``verify`` per answer, and closes it."""

    Settings: ClassVar[type[VerifierSettings]]
    #: True: grading costs what answering does, so an answer whose grading is given up is kept as ``judge_failed``.
    keeps_answers: ClassVar[bool] = False

    def __init__(self, settings: S_co) -> None:
        self.settings = settings

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        return None

    def check_row(self, row: dict[str, Any]) -> None:
        """Raise ValueError with what is missing when ``row`` cannot be graded. Called for each row before any dispatch."""
        del row

    def identity(self) -> dict[str, Any]:
        """What beside the settings decides a verdict (the digest of a user's own code, say); part of the experiment."""
        return {}

    @abstractmethod
    async def verify(self, row: dict[str, Any], answer: Answer) -> Verdict | Failure:
        """Grade ``answer`` to the materialized ``row``. Neither may be changed.

        An exception that escapes becomes a ``verifier_error`` failure of this one rollout.
        """


def verdict_for_truncated(answer: Answer) -> Verdict | None:
    """A masked verdict for an answer that hit the token limit before it said anything; None for every other answer.

    An empty answer of that sort measures the limit, not the model, so it must not become a reward of 0.
    """
    if not answer.truncated or answer.text.strip():
        return None
    reason = "the model stopped at the token limit before it answered"
    return Verdict(reward=None, masked=True, kind=FailureKind.AGENT_RUN_ERROR, reason=reason)


VERIFIERS: Registry[Verifier[VerifierSettings]] = Registry(
    kind="verifier",
    group="gym_eval.verifiers",
    base=Verifier,
    builtin={
        "environment": "collector.verifiers.environment:EnvironmentVerifier",
        "exact_match": "collector.verifiers.text:ExactMatchVerifier",
        "regex": "collector.verifiers.text:RegexVerifier",
        "number": "collector.verifiers.number:NumberVerifier",
        "multiple_choice": "collector.verifiers.choice:MultipleChoiceVerifier",
        "math": "collector.verifiers.math:MathVerifier",
        "gym_server": "collector.reverify.gym_server:GymServerVerifier",
        "judge": "collector.verifiers.judge:JudgeVerifier",
        "python": "collector.verifiers.python:PythonVerifier",
    },
)

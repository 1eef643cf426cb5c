"""The verifier of runs whose agent brings the grade: the environment that runs a task grades it, and nothing is left to do."""

from __future__ import annotations

from typing import Any

from collector.outcomes import Answer, Failure, Verdict
from collector.verifiers.base import Verifier, VerifierSettings


class EnvironmentSettings(VerifierSettings):
    """Settings under ``verifier:`` for ``type: environment``."""


class EnvironmentVerifier(Verifier[EnvironmentSettings]):
    """Stands where a verifier has to be named; it is never asked."""

    Settings = EnvironmentSettings

    async def verify(self, row: dict[str, Any], answer: Answer) -> Verdict | Failure:
        """Never called: an agent that grades gives no answer without its grade."""
        del row, answer
        raise AssertionError("the agent of this run grades by itself")

"""Grading of mathematics: the answer and the expected one are parsed and compared symbolically, in worker processes."""

from __future__ import annotations

import logging
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Final, Self

from pydantic import Field

from collector.errors import ConfigError
from collector.outcomes import Answer, Failure, Verdict
from collector.setting_kinds import Count, Seconds
from collector.settings import REPORTING
from collector.verifiers.base import Verifier, VerifierSettings
from collector.verifiers.patterns import grading_failed
from collector.verifiers.rows import text_field_of
from collector.verifiers.workers import WorkerPool, WorkError, WorkTimeoutError

#: The final formula stands at the end; parsing more costs seconds and finds earlier, unfinished ones.
_TAIL: Final = 20_000


class MathSettings(VerifierSettings):
    """Settings under ``verifier:`` for ``type: math``."""

    field: str = "expected_answer"
    #: Longest time for one comparison; one that takes longer has no score.
    timeout_s: Seconds = 10.0
    #: Worker processes; each needs about 100 MB.
    workers: Count = Field(default=2, json_schema_extra=REPORTING)


class MathVerifier(Verifier[MathSettings]):
    """Reward 1 when the last formula or number of the answer equals the expected one as mathematics, else 0."""

    Settings = MathSettings

    def __init__(self, settings: MathSettings) -> None:
        super().__init__(settings)
        if find_spec("math_verify") is None:
            raise ConfigError("verifier math needs the package math-verify.", 'Install it: pip install "gym-eval[math]".')

    async def __aenter__(self) -> Self:
        target = "collector.verifiers.math:compare"
        self._pool = await WorkerPool(target, size=self.settings.workers, timeout_s=self.settings.timeout_s).__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._pool.__aexit__(*exc)

    def identity(self) -> dict[str, Any]:
        """The version of the comparison: another one may grade differently."""
        return {"math_verify": version("math-verify")}

    def check_row(self, row: dict[str, Any]) -> None:
        """Raise ValueError when the expected answer is missing. Whether it can be parsed shows when it is compared."""
        text_field_of(row, self.settings.field)

    async def verify(self, row: dict[str, Any], answer: Answer) -> Verdict | Failure:
        """Compare in a worker; an expected answer that cannot be parsed is a failure, an unparsable answer is wrong."""
        task = {"expected": text_field_of(row, self.settings.field), "text": answer.text[-_TAIL:]}
        try:
            result = await self._pool.run(task)
        except (WorkTimeoutError, WorkError) as error:
            return grading_failed(f"the comparison failed: {error}", type(error).__name__)
        return Verdict(
            reward=result["reward"], extra={"extracted_answer": result["found"], "no_answer": int(not result["parsed"])}
        )


def compare(task: dict[str, Any]) -> dict[str, Any]:
    """The comparison of one answer with the expected one. Runs in a worker; raises ValueError for an unusable expectation."""
    from math_verify import parse, verify  # noqa: PLC0415 - sympy takes a second to import

    # It warns at each call that its own limits are off.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    # 0 turns its own limits off: they use signals of the main thread, and the pool kills instead.
    expected_text: str = task["expected"]
    expected = parse(f"${expected_text}$", parsing_timeout=0) or parse(expected_text, parsing_timeout=0)
    if not expected:
        raise ValueError(f"the expected answer {expected_text[:80]!r} is no mathematics")
    found = parse(task["text"], parsing_timeout=0)
    if not found:
        return {"reward": 0.0, "found": None, "parsed": False}
    is_equal = verify(expected, found, timeout_seconds=None)
    return {"reward": float(is_equal), "found": str(found[-1])[:1000], "parsed": True}

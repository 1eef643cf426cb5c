"""Grades one answer in an event loop of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import uvloop

from collector.outcomes import Answer, Failure, Verdict
from collector.preparation.prepare import make_verifier
from collector.settings import RunSettings
from collector.verifiers.base import Verifier


def verifier_of(settings: dict[str, Any] | str) -> Verifier[Any]:
    run = RunSettings(input_jsonl_fpath=Path("in.jsonl"), output_jsonl_fpath=Path("out.jsonl"), verifier=settings)  # type: ignore[arg-type]
    return make_verifier(run)


def grade(settings: dict[str, Any] | str, text: str, **row: Any) -> Verdict | Failure:
    async def scenario() -> Verdict | Failure:
        async with verifier_of(settings) as verifier:
            verifier.check_row(row)
            return await verifier.verify(row, Answer(response={"output": []}, text=text))

    return uvloop.run(scenario())


def reward(settings: dict[str, Any] | str, text: str, **row: Any) -> float | None:
    verdict = grade(settings, text, **row)
    assert isinstance(verdict, Verdict), verdict
    return verdict.reward

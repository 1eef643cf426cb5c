"""What every built-in verifier promises, whatever the answer is."""

from __future__ import annotations

from typing import Any

import pytest
import uvloop

from collector import jsonl
from collector.outcome_checks import is_reward
from collector.outcomes import Answer, Failure, Verdict
from collector.verifiers.base import VERIFIERS
from tests.support.model_server import ModelServer
from tests.verifiers.grading import verifier_of


def length(row: dict[str, Any], text: str, response: dict[str, Any]) -> float:
    del row, response
    return len(text)


SETTINGS: dict[str, dict[str, Any]] = {
    "exact_match": {"extract": "(.)"},
    "regex": {"pattern": "[0-9]+"},
    "number": {},
    "multiple_choice": {},
    "math": {"timeout_s": 30},
    "python": {"function": "tests.verifiers.test_contract:length"},
    "judge": {
        "base_url": "http://127.0.0.1:1/v1",
        "model": "test-model",
        "prompt": {"user": "[[answer: VERDICT: correct]] {expected_answer} {model_answer}"},
    },
}
ROWS = {"multiple_choice": {"expected_answer": "B", "options": ["1", "2"]}}
TEXTS = [
    "",
    " ",
    "5",
    "B",
    "\x00",
    "\ud800",
    "a\u2028b\u2029c\u0085d\u000b",
    "\\boxed{",
    "$$",
    "$\\frac{$",
    "{" * 2000,
    "9" * 100_000,
]


#: Those that grade only what servers of a NeMo Gym answered.
OF_GYM = {"environment", "gym_server"}


def test_every_built_in_verifier_is_tried_here() -> None:
    assert SETTINGS.keys() | OF_GYM == VERIFIERS.builtin.keys()


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_any_text_gets_a_finite_reward_that_can_be_written_or_a_failure(name: str, model_server: ModelServer) -> None:
    row = ROWS.get(name, {"expected_answer": "5"})
    before = jsonl.dumps(row)

    async def scenario() -> list[Verdict | Failure]:
        served = {"base_url": model_server.base_url} if name == "judge" else {}
        async with verifier_of({"type": name, **SETTINGS[name], **served}) as verifier:
            verifier.check_row(row)
            return [await verifier.verify(row, Answer(response={}, text=text)) for text in TEXTS]

    for text, verdict in zip(TEXTS, uvloop.run(scenario()), strict=True):
        assert isinstance(verdict, Verdict), (text[:20], verdict)
        assert is_reward(verdict.reward)
        assert jsonl.loads(jsonl.dumps(verdict.extra)) == verdict.extra
        assert not any(key.startswith("_ng_") for key in verdict.extra)
    assert jsonl.dumps(row) == before


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_what_decides_a_verdict_is_plain_data(name: str) -> None:
    verifier = verifier_of({"type": name, **SETTINGS[name]})

    assert jsonl.loads(jsonl.canonical(verifier.identity())) == verifier.identity()

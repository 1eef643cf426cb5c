"""Symbolic comparison in worker processes."""

from __future__ import annotations

import sys

import pytest

from collector.errors import ConfigError
from collector.outcomes import Failure, FailureKind, Verdict
from tests.verifiers.grading import grade, verifier_of

MATH = {"type": "math", "timeout_s": 30}


@pytest.mark.parametrize(
    ("text", "expected", "wanted"),
    [
        pytest.param(r"so $\frac{1}{2}$", "0.5", 1.0, id="fraction"),
        pytest.param(r"\boxed{(x+1)^2}", "x^2+2x+1", 1.0, id="expanded"),
        pytest.param(r"$\sqrt{8}$", r"2\sqrt{2}", 1.0, id="root"),
        pytest.param(r"$3$", "4", 0.0, id="wrong"),
        pytest.param("no idea\x00\ud800", "4", 0.0, id="no-mathematics"),
    ],
)
def test_equal_mathematics_is_right_however_it_is_written(text: str, expected: str, wanted: float) -> None:
    verdict = grade(MATH, text, expected_answer=expected)

    assert isinstance(verdict, Verdict)
    assert verdict.reward == wanted
    assert "extracted_answer" in verdict.extra


def test_a_comparison_that_never_ends_is_a_failure_and_no_score() -> None:
    failure = grade({"type": "math", "timeout_s": 2, "workers": 1}, r"$9^{9^{9^{9}}}$", expected_answer=r"9^{9^{9^{8}}}+1")

    assert isinstance(failure, Failure)
    assert failure.kind == FailureKind.VERIFIER_ERROR


def test_a_missing_package_is_named_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "math_verify", None)
    monkeypatch.setattr("collector.verifiers.math.find_spec", lambda _: None)

    with pytest.raises(ConfigError, match=r'pip install "gym-eval\[math\]"'):
        verifier_of("math")

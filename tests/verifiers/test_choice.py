"""Which letter an answer settles on."""

from __future__ import annotations

import time
from typing import Any

import pytest

from collector.outcomes import Verdict
from tests.verifiers.grading import grade, reward

OPTIONS = {"A": "Paris", "B": "Rome", "C": "Berlin", "D": "Madrid"}


def chosen(text: str, options: Any = OPTIONS, **settings: Any) -> str | None:
    verdict = grade({"type": "multiple_choice", **settings}, text, options=options, expected_answer="A")
    assert isinstance(verdict, Verdict)
    assert verdict.extra["no_answer"] == int(verdict.extra["extracted_answer"] is None)
    return verdict.extra["extracted_answer"]


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        pytest.param("B", "B", id="bare"),
        pytest.param("b", "B", id="bare-small"),
        pytest.param(" (b). ", "B", id="bare-in-brackets"),
        pytest.param("**B**", "B", id="bold"),
        pytest.param("B.", "B", id="with-dot"),
        pytest.param("B) Rome", "B", id="letter-and-text"),
        pytest.param("B: because A is wrong", "B", id="letter-first"),
        pytest.param("Answer: B", "B", id="answer-colon"),
        pytest.param("Answer: b", "B", id="answer-colon-small"),
        pytest.param("**Answer:** (B)", "B", id="bold-answer"),
        pytest.param("The correct answer is B.", "B", id="answer-is"),
        pytest.param("The answer is **B**, not A", "B", id="stated-before-other"),
        pytest.param("the answer should be (C)", "C", id="should-be"),
        pytest.param("A is wrong. Answer: B\nOn reflection, Answer: C", "C", id="last-statement"),
        pytest.param(r"so \boxed{B}", "B", id="boxed"),
        pytest.param(r"\boxed{\text{B}} rather than Answer: A", "B", id="boxed-text-wins"),
        pytest.param(r"\boxed{(B)}", "B", id="boxed-brackets"),
        pytest.param(r"\boxed{Rome}", "B", id="boxed-option-text"),
        pytest.param("Rome", "B", id="option-text"),
        pytest.param(" rome. ", "B", id="option-text-loosely"),
        pytest.param("I pick (B) here", "B", id="bracketed"),
        pytest.param("Out of these I would go for D", "D", id="last-letter"),
        pytest.param("I think C", "C", id="pronoun"),
        pytest.param("Option C", "C", id="option"),
        pytest.param("The capital is a city", None, id="article"),
        pytest.param("The answer is a bit longer", None, id="small-article-after-answer"),
        pytest.param("", None, id="empty"),
        pytest.param("I don't know", None, id="no-answer"),
        pytest.param("E", None, id="no-such-option"),
        pytest.param("CAB", None, id="word"),
        pytest.param("B\x00\ud800", "B", id="nul-and-surrogate"),
    ],
)
def test_the_stated_choice_is_found(text: str, letter: str | None) -> None:
    assert chosen(text) == letter


def test_the_last_letter_can_be_left_out() -> None:
    assert chosen("I would go for D", fallback="none") is None
    assert chosen("Answer: D", fallback="none") == "D"


@pytest.mark.parametrize(
    ("row", "text", "wanted"),
    [
        pytest.param({"options": ["x", "y"], "expected_answer": "B"}, "B", 1.0, id="list"),
        pytest.param({"options": ["x", "y"], "expected_answer": 1}, "B", 1.0, id="list-by-index"),
        pytest.param({"options": OPTIONS, "expected_answer": "Berlin"}, "C", 1.0, id="by-text"),
        pytest.param({"options": {"a": "x", "b": "y"}, "expected_answer": "b"}, "(B)", 1.0, id="small-letters"),
        pytest.param({"options": {"1": "x", "2": "y"}, "expected_answer": "2"}, "Answer: 2", 1.0, id="digits"),
        pytest.param({"expected_answer": "J"}, "Answer: J", 1.0, id="options-in-the-prompt"),
        pytest.param({"options": OPTIONS, "expected_answer": "(C)"}, "A", 0.0, id="wrong"),
        pytest.param({"options": OPTIONS, "expected_answer": "C"}, "no idea", 0.0, id="no-answer-is-zero"),
    ],
)
def test_options_may_be_an_object_a_list_or_in_the_prompt(row: dict[str, Any], text: str, wanted: float) -> None:
    assert reward("multiple_choice", text, **row) == wanted


@pytest.mark.parametrize(
    ("row", "named"),
    [
        pytest.param({"options": OPTIONS}, "no field 'expected_answer'", id="missing"),
        pytest.param({"options": OPTIONS, "expected_answer": "E"}, "none of the choices A, B, C, D", id="no-such-letter"),
        pytest.param({"options": ["x", "x"], "expected_answer": "x"}, "none of the choices", id="ambiguous-text"),
        pytest.param({"options": ["x"], "expected_answer": True}, "none of the choices", id="bool"),
        pytest.param({"options": "A or B", "expected_answer": "A"}, "'options' must be a list", id="text-options"),
        pytest.param({"options": {"first": "x"}, "expected_answer": "first"}, "single letters", id="long-names"),
    ],
)
def test_a_row_without_a_right_choice_is_refused_before_dispatch(row: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=r"the row") as refusal:
        grade("multiple_choice", "A", **row)

    assert named in str(refusal.value)


@pytest.mark.parametrize("piece", ["answer ", "answer: ", "( ", "A", "A ", "\\boxed{", "**", "\n", "answer is ", " "])
def test_ten_megabytes_of_hostile_text_are_graded_at_once(piece: str) -> None:
    started = time.monotonic()
    chosen(piece * (10_000_000 // len(piece)))

    assert time.monotonic() - started < 20

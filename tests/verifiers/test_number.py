"""Which number of an answer counts, and when two numbers are equal."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.outcomes import Verdict
from collector.verifiers.number import last_number
from tests.verifiers.grading import grade, reward


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("The answer is 5.", 5, id="sentence-end"),
        pytest.param("2 + 3 = 5", "5", id="equation"),
        pytest.param("So it costs $1,234.50 in all", 1234.5, id="currency-and-thousands"),
        pytest.param("1 234 567", 1234567, id="space-thousands"),
        pytest.param("1\u202f234,5 is odd", 5, id="comma-decimal-is-two-numbers"),
        pytest.param("first 10, then 20", 20, id="last-counts"),
        pytest.param("10, 200", 200, id="list-is-no-thousands"),
        pytest.param("-7", -7, id="minus"),
        pytest.param("\u22127 degrees", -7, id="unicode-minus"),
        pytest.param("-$40", -40, id="minus-currency"),
        pytest.param("$-40", -40, id="currency-minus"),
        pytest.param("10-3", 3, id="subtraction-is-no-sign"),
        pytest.param("pages 12\u201315", 15, id="range-is-no-sign"),
        pytest.param("x=-3", -3, id="minus-after-equals"),
        pytest.param("3/4", "0.75", id="fraction"),
        pytest.param("it is -1/2", "-0.5", id="negative-fraction"),
        pytest.param(r"$\frac{3}{4}$", "3/4", id="latex-fraction"),
        pytest.param(r"-\dfrac{1}{2}", "-0.5", id="negative-latex-fraction"),
        pytest.param("6.02e23", "602000000000000000000000", id="scientific"),
        pytest.param("1.5E-3", "0.0015", id="negative-exponent"),
        pytest.param(".5", 0.5, id="no-leading-digit"),
        pytest.param("50%", 50, id="percent-is-ignored"),
        pytest.param("5.0", "5", id="trailing-zero"),
        pytest.param(r"The answer is \boxed{42}. Check: 6*7 and 1.", 42, id="boxed-first"),
        pytest.param(r"\boxed{1} no, \boxed{\text{about } 1{,}000}", 0, id="last-box-counts"),
        pytest.param("steps 1 2 3\n#### 18\n(note 7)", 18, id="marker"),
        pytest.param("0.1 + 0.2 = 0.3", "0.30", id="decimal-not-binary"),
        pytest.param("12345678901234567890123", "12345678901234567890123", id="beyond-float"),
        pytest.param("5\x00", 5, id="nul"),
        pytest.param("\ud800 5", 5, id="lone-surrogate"),
        pytest.param("**5**", 5, id="markdown"),
    ],
)
def test_the_final_number_is_found_and_compared(text: str, expected: Any) -> None:
    assert reward({"type": "number"}, text, expected_answer=expected) == 1.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("12345678901234567890124", "12345678901234567890123", id="one-off-beyond-float"),
        pytest.param("0.30000000000000004", "0.3", id="rounding-noise"),
        pytest.param("5 or 6", 5, id="hedging"),
        pytest.param("-5", 5, id="sign"),
        pytest.param("1/0", 1, id="division-by-zero"),
        pytest.param("1e999999", 5, id="huge-exponent"),
        pytest.param("five", 5, id="word"),
        pytest.param("", 0, id="empty-is-not-zero"),
        pytest.param("\u0665", 5, id="other-digits"),
    ],
)
def test_another_number_is_wrong(text: str, expected: Any) -> None:
    assert reward({"type": "number"}, text, expected_answer=expected) == 0.0


@pytest.mark.parametrize(
    ("settings", "text", "expected", "wanted"),
    [
        pytest.param({"abs_tol": 0.01}, "3.15", 3.14, 1.0, id="absolute-limit-included"),
        pytest.param({"abs_tol": 0.01}, "3.1501", 3.14, 0.0, id="beyond-absolute"),
        pytest.param({"rel_tol": 0.01}, "-101", -100, 1.0, id="relative"),
        pytest.param({"rel_tol": 0.01}, "-102", -100, 0.0, id="beyond-relative"),
        pytest.param({"percent_as_fraction": True}, "5%", "0.05", 1.0, id="percent-as-fraction"),
        pytest.param({"markers": ["Answer:"]}, "Answer: 4 (of 9)", 4, 1.0, id="own-marker"),
        pytest.param({"boxed": False}, r"\boxed{4} and 9", 9, 1.0, id="box-ignored"),
        pytest.param({"field": "target"}, "9", None, 1.0, id="own-field"),
    ],
)
def test_settings_say_what_counts(settings: dict[str, Any], text: str, expected: Any, wanted: float) -> None:
    assert reward({"type": "number", **settings}, text, expected_answer=expected, target=9) == wanted


def test_the_verdict_shows_what_was_extracted() -> None:
    found = grade("number", "it is 1,250.00", expected_answer=3)
    missing = grade("number", "I do not know", expected_answer=3)

    assert found == Verdict(reward=0.0, extra={"extracted_answer": "1250", "no_answer": 0})
    assert missing == Verdict(reward=0.0, extra={"extracted_answer": None, "no_answer": 1})


@pytest.mark.parametrize(
    ("row", "named"),
    [
        pytest.param({"answer": 5, "expected_anser": 5}, "Did you mean 'expected_anser'? its fields are: answer", id="missing"),
        pytest.param({"expected_answer": None}, "field 'expected_answer' is null", id="null"),
        pytest.param({"expected_answer": True}, "holds no number", id="bool"),
        pytest.param({"expected_answer": "five"}, "holds no number", id="word"),
        pytest.param({"expected_answer": [5]}, "holds no number", id="list"),
    ],
)
def test_a_row_without_an_expected_number_is_refused_before_dispatch(row: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=r"expected_answer") as refusal:
        grade("number", "5", **row)

    assert named in str(refusal.value)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("9" * 10_000_000, id="digits"),
        pytest.param("1," * 5_000_000, id="commas"),
        pytest.param("-$" * 5_000_000, id="signs"),
        pytest.param("1 / " * 2_500_000, id="slashes"),
        pytest.param("\\frac{" * 1_500_000, id="fractions"),
        pytest.param("\\boxed{" * 1_500_000, id="boxes"),
        pytest.param("123 " * 2_500_000, id="space-thousands"),
    ],
)
def test_ten_megabytes_of_hostile_text_are_graded_at_once(text: str) -> None:
    started = time.monotonic()
    reward("number", text, expected_answer=5)

    assert time.monotonic() - started < 20


@given(
    st.integers(min_value=-(10**30), max_value=10**30), st.sampled_from(["{}", "${:,}", "it is {:,}.", "#### {}", "= {} kg"])
)
def test_every_integer_is_read_back_from_a_sentence(value: int, sentence: str) -> None:
    assert last_number(sentence.format(value)) == value


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    found = last_number(text)

    assert found is None or found.is_finite()

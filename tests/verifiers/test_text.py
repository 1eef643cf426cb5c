"""Equality and regular expressions, and what happens to a pattern that never ends."""

from __future__ import annotations

import time
from typing import Any

import pytest
import uvloop

from collector.errors import ConfigError
from collector.outcomes import Answer, Failure, FailureKind, Verdict
from collector.verifiers import patterns
from collector.verifiers.rows import field_of
from tests.verifiers.grading import grade, reward, verifier_of


@pytest.mark.parametrize(
    ("settings", "text", "expected", "wanted"),
    [
        pytest.param({}, " Paris\n", "Paris", 1.0, id="stripped"),
        pytest.param({"strip": False}, " Paris", "Paris", 0.0, id="not-stripped"),
        pytest.param({}, "paris", "Paris", 0.0, id="case-counts"),
        pytest.param({"ignore_case": True}, "STRASSE", "straße", 1.0, id="case-folded"),
        pytest.param({"normalize": "whitespace"}, "a \n\t b", "a b", 1.0, id="white-space"),
        pytest.param({}, "5", 5, 1.0, id="number-field"),
        pytest.param({}, "b", ["a", "b"], 1.0, id="any-of-a-list"),
        pytest.param({"extract": r"Answer: (\w+)"}, "Answer: a\nAnswer: b", "b", 1.0, id="last-extraction"),
        pytest.param({"extract": r"Answer: (\w+)"}, "b", "b", 0.0, id="nothing-extracted"),
        pytest.param({}, "", "x", 0.0, id="empty"),
        pytest.param({}, "a\x00b\ud800", "a\x00b\ud800", 1.0, id="nul-and-surrogate"),
        pytest.param({"extract": "(?s).+"}, "a\x00b\ud800\u2028", "a\x00b\ud800", 1.0, id="extracted-surrogate"),
    ],
)
def test_an_answer_equals_the_expected_text(settings: dict[str, Any], text: str, expected: Any, wanted: float) -> None:
    assert reward({"type": "exact_match", **settings}, text, expected_answer=expected) == wanted


@pytest.mark.parametrize(
    ("settings", "row", "text", "wanted"),
    [
        pytest.param({"pattern": "colou?r"}, {}, "my color", 1.0, id="search"),
        pytest.param({"pattern": "colou?r", "full_match": True}, {}, "my color", 0.0, id="full-match"),
        pytest.param({"pattern": "colou?r", "full_match": True}, {}, " color\n", 1.0, id="full-match-stripped"),
        pytest.param({"pattern": "PARIS", "ignore_case": True}, {}, "paris", 1.0, id="ignore-case"),
        pytest.param({"field": "want"}, {"want": r"^\d+$"}, "123", 1.0, id="pattern-of-the-row"),
    ],
)
def test_an_answer_matches_the_pattern(settings: dict[str, Any], row: dict[str, Any], text: str, wanted: float) -> None:
    assert reward({"type": "regex", **settings}, text, **row) == wanted


def test_a_pattern_that_never_ends_fails_one_answer_and_the_next_is_graded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "SEARCH_TIMEOUT_S", 1.0)

    async def scenario() -> list[Verdict | Failure]:
        async with verifier_of({"type": "regex", "field": "want"}) as verifier:
            rows = [{"want": "(a+)+$"}, {"want": "b$"}]
            return [await verifier.verify(row, Answer(response={}, text="a" * 40 + "b")) for row in rows]

    started = time.monotonic()
    endless, sane = uvloop.run(scenario())

    assert time.monotonic() - started < 20
    assert isinstance(endless, Failure)
    assert endless.kind == FailureKind.VERIFIER_ERROR
    assert "did not end within 1 s" in endless.reason
    assert isinstance(sane, Verdict)
    assert sane.reward == 1.0


def test_ten_megabytes_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "SEARCH_TIMEOUT_S", 20.0)

    assert reward({"type": "regex", "pattern": "needle"}, "\u2028é" * 3_300_000 + "needle") == 1.0


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        pytest.param({"type": "regex", "pattern": "("}, "not a regular expression", id="broken-pattern"),
        pytest.param({"type": "regex"}, "exactly one of pattern and field", id="no-pattern"),
        pytest.param({"type": "regex", "pattern": "a", "field": "b"}, "exactly one", id="two-patterns"),
        pytest.param({"type": "exact_match", "extract": "["}, "verifier.extract", id="broken-extract"),
        pytest.param({"type": "exact_match", "feild": "x"}, "verifier.feild", id="misspelt"),
        pytest.param("exactmatch", "Did you mean 'exact_match'?", id="unknown-verifier"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_key(settings: dict[str, Any] | str, named: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        verifier_of(settings)

    assert named in str(refusal.value)


@pytest.mark.parametrize(
    ("settings", "row", "named"),
    [
        pytest.param({"type": "exact_match"}, {"answer": "x"}, "its fields are: answer", id="missing"),
        pytest.param({"type": "exact_match"}, {"expected_answer": []}, "empty list", id="empty-list"),
        pytest.param({"type": "exact_match"}, {"expected_answer": {"a": 1}}, "not dict", id="object"),
        pytest.param({"type": "regex", "field": "want"}, {"want": "("}, "not a regular expression", id="broken-pattern"),
    ],
)
def test_a_row_that_cannot_be_graded_is_refused_before_dispatch(
    settings: dict[str, Any], row: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValueError, match=r".") as refusal:
        grade(settings, "x", **row)

    assert named in str(refusal.value)


def test_a_field_that_is_null_is_not_called_absent() -> None:
    with pytest.raises(ValueError, match=r"^the row's field 'expected_answer' is null$"):
        field_of({"expected_answer": None, "question": "?"}, "expected_answer")

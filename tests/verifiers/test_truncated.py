"""An answer that the token limit cut before it began is no measurement."""

from __future__ import annotations

import pytest

from collector.outcomes import Answer
from collector.verifiers.base import verdict_for_truncated


@pytest.mark.parametrize("text", [pytest.param("", id="empty"), pytest.param(" \n", id="blank")])
def test_an_empty_cut_answer_is_masked_and_has_no_reward(text: str) -> None:
    verdict = verdict_for_truncated(Answer(response={}, text=text, truncated=True))

    assert verdict is not None
    assert (verdict.masked, verdict.reward, verdict.kind) == (True, None, "agent_run_error")
    assert "token limit" in (verdict.reason or "")


@pytest.mark.parametrize(
    ("text", "truncated"),
    [pytest.param("The ans", True, id="cut-with-text"), pytest.param("", False, id="empty-by-choice")],
)
def test_every_other_answer_is_graded(text: str, truncated: bool) -> None:
    assert verdict_for_truncated(Answer(response={}, text=text, truncated=truncated)) is None

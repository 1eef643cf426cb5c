"""What an error says is one readable line whatever was put into it."""

from __future__ import annotations

import pytest

from collector.errors import GymEvalError


@pytest.mark.parametrize(
    ("what", "shown"),
    [
        pytest.param("it failed after 5 tries", "r: it failed after 5 tries. Mend it.", id="words-of-a-server"),
        pytest.param("it failed.", "r: it failed. Mend it.", id="a-sentence"),
        pytest.param("is it there?", "r: is it there? Mend it.", id="a-question"),
        pytest.param("it failed \n", "r: it failed. Mend it.", id="a-line-break"),
    ],
)
def test_what_is_wrong_and_what_to_do_are_two_sentences(what: str, shown: str) -> None:
    assert str(GymEvalError(what, "Mend it.", "r")) == shown

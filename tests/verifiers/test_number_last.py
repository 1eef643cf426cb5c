"""The last number of a text is the same whether the whole text is searched or only the stretches that can hold one."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings

from collector.verifiers.number import _NUMBER, _value, last_number  # pyright: ignore[reportPrivateUsage]

PIECES = st.sampled_from(
    ["3", "12", "1,000", "1 000", "-", "+", "\u2212", ".", ",", " ", "e", "E5", "/", "%", "$", "\\", "\\frac{1}{2}", "\\dfrac{", "}", "{",
     "a", "x", "cafe", "\n", "\u00a0", "(", ")", "]", "€", "√", "٣", "0", "1e9999999", "/0"]
)  # fmt: skip


def slow(text: str) -> object:
    for match in reversed(list(_NUMBER.finditer(text))):
        value = _value(match, percent_as_fraction=True)
        if value is not None:
            return value
    return None


@settings(max_examples=2000)
@given(st.lists(PIECES, max_size=14).map("".join))
def test_searching_from_the_end_finds_what_searching_everything_finds(text: str) -> None:
    assert last_number(text, percent_as_fraction=True) == slow(text)

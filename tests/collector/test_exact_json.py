"""JSON is read as it says, however long its numbers are: two readers share the work, and no text may tell which one it was."""

from __future__ import annotations

import json
import math

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector import jsonl

DIGITS = st.text("0123456789", min_size=1, max_size=45)
WHOLE = DIGITS.map(lambda text: text.lstrip("0") or "0")
NUMBERS = st.tuples(
    st.sampled_from(["", "-"]),
    WHOLE,
    st.one_of(st.just(""), DIGITS.map(".{}".format)),
    st.one_of(st.just(""), st.integers(-330, 260).map("e{}".format)),
).map("".join)
#: Numbers, and texts that look like some.
PARTS = st.one_of(NUMBERS, st.tuples(st.just('"'), st.sampled_from(["", ".", "x."]), NUMBERS, st.just('"')).map("".join))


@given(st.lists(PARTS, min_size=1, max_size=6), st.sampled_from([",", ", ", ",\n"]))
def test_any_mixture_of_numbers_is_read_exactly(parts: list[str], comma: str) -> None:
    text = f"[{comma.join(parts)}]"
    expected = json.loads(text)
    if any(isinstance(part, float) and math.isinf(part) for part in expected):
        with pytest.raises(ValueError, match=r"number|infinity"):
            jsonl.loads(text.encode())
        return

    found = jsonl.loads(text.encode())

    assert found == expected
    assert list(map(type, found)) == list(map(type, expected))


@pytest.mark.parametrize(
    "text",
    [
        '{"logprob": -0.00001234567890123456}',
        '{"std/reward": 0.00048989794855663561, "mean/reward": 0.12345678901234567}',
        '[1.2345678901234567890, "id-0.1234567890123456789"]',
    ],
)
def test_a_long_fraction_does_not_send_a_row_to_the_slow_reader(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: object, **__: object) -> None:
        raise AssertionError("the slow reader was asked")

    monkeypatch.setattr("collector.jsonl.json.loads", slow)

    assert jsonl.loads(text.encode()) == orjson.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        "18446744073709551616",
        '{"a": 0.00012345678901234567, "b": 18446744073709551616}',
        "[-0.0000000000000000000000000000000000000000001, -18446744073709551616]",
    ],
)
def test_an_integer_that_64_bits_do_not_hold_keeps_all_its_digits(text: str) -> None:
    assert jsonl.dumps(jsonl.loads(text.encode())).decode().replace(" ", "") == json.dumps(
        json.loads(text), separators=(",", ":")
    )

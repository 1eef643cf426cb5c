"""The value of a key in the JSON objects of a running text: the last object, the outermost, and whatever braces stand around it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.verifiers.json_in_text import value_in_text
from collector.verifiers.judge_parse import json_value

#: What texts are made of: whole objects, and pieces that begin, end and break them.
_PIECES = (
    "{", "}", "[", "]", ":", ",", '"', "\\", '\\"', " ", "\n", "x", "k", '"k"', '"a"', '"k":', '{"k":', '"a":', "0", "-1.5e3", "1.",
    "true", "null", "NaN", "-Infinity", '{"k":1}', '{"k":"v"}', '{"a":{"k":2}}', '["k"]', "\\u006b", '"\\u006b"', "é", "\t", "{}", "[]",
)  # fmt: skip


def value_by_parsing_at_every_brace(text: str, key: str) -> str | None:
    """The same by Python's parser, begun anew at each brace from the last to the first."""
    decoder = json.JSONDecoder()
    begin, found_end, found, is_found = len(text), -1, None, False
    while (begin := text.rfind("{", 0, begin)) >= 0:
        try:
            value, end = decoder.raw_decode(text, begin)
        except ValueError:
            continue
        if key in value and end > found_end:
            if is_found and end <= found_end:
                continue
            is_found, found_end, found = True, end, value[key]
    if not is_found:
        return None
    return found if isinstance(found, str) else json.dumps(found)


@settings(max_examples=3000, deadline=None)
@given(st.lists(st.sampled_from(_PIECES), max_size=30).map("".join))
def test_it_is_what_a_parser_finds_that_begins_at_every_brace(text: str) -> None:
    assert json_value(text, "k") == value_by_parsing_at_every_brace(text, "k")


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["k", "a", 'q"', "\\"]), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=500, deadline=None)
@given(
    st.lists(_json | st.sampled_from(["see {x}", "\\boxed{3}", '"', "}"]), max_size=6),
    st.sampled_from([None, 2]),
    st.booleans(),
)
def test_values_of_any_form_between_words_are_found(parts: list[object], indent: int | None, is_ascii: bool) -> None:
    text = " and ".join(
        part if isinstance(part, str) else json.dumps(part, indent=indent, ensure_ascii=is_ascii) for part in parts
    )

    assert json_value(text, "k") == value_by_parsing_at_every_brace(text, "k")


@pytest.mark.parametrize(
    "around",
    [
        pytest.param("{", id="braces"),
        pytest.param('{"k":', id="objects-that-never-end"),
        pytest.param('{"a":[{"k":"', id="strings-that-never-end"),
        pytest.param('{"k\\":{"', id="quotes-escaped"),
        pytest.param('["', id="quotes-in-and-out"),
        pytest.param("{ \n", id="blanks"),
        pytest.param("\\boxed{x}", id="latex"),
        pytest.param('{"k": 1, "a": "', id="members-before-what-never-ends"),
    ],
)
def test_a_verdict_is_found_behind_and_before_any_number_of_braces(around: str) -> None:
    """Two hundred thousand, not fifty: a parser that begins at each would take hours."""
    many = around * 200_000

    assert value_in_text(f'{many}\n {{"k": "yes"}}', "k") == '"yes"'
    assert value_in_text(f'{{"k": "yes"}}\n {many}', "k") == '"yes"'


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param('{"k": "a"} {"k": "b"} {"end": {}}', "b", id="the-last-that-has-it"),
        pytest.param('{"k": "a", "parts": [{"k": "b"}]}', "a", id="the-outermost"),
        pytest.param('{"x": {"k": "b"}, "y": 1}', "b", id="within-one-that-has-it-not"),
        pytest.param('{"k": "a", "k": "b"}', "b", id="twice-in-one"),
        pytest.param('{"\\u006b": "\\u0061"}', "a", id="escaped"),
        pytest.param("{" + '"a": {' * 60 + '"k": 7' + "}" * 60 + "}", "7", id="sixty-levels-deep"),
        pytest.param('{"k": ' + "[" * 5000 + "]" * 5000 + "}", "[" * 5000 + "]" * 5000, id="deeper-than-a-parser-goes"),
        pytest.param('{"k": ' + "1" * 5000 + "}", "1" * 5000, id="longer-than-a-number-is-read"),
        pytest.param('{"k": 1,}', None, id="a-comma-too-many"),
        pytest.param('{"k" 1}', None, id="no-colon"),
        pytest.param("{'k': 1}", None, id="other-quotes"),
        pytest.param('{"k": "a\nb"}', None, id="a-line-end-in-a-string"),
    ],
)
def test_which_value_it_is(text: str, value: str | None) -> None:
    assert json_value(text, "k") == value

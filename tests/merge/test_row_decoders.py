"""Rows of one shape are read by a decoder made for it: the numbers are those that reading each row for itself gives."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from merge.metrics.table import RowTable
from merge.rows.blocks import RowBlock
from merge.rows.decoders import decode_any, exact_row
from merge.rows.numbers import PERFORMANCE, NumberReader

#: As text: what one program writes as 1 another writes as 1.0, and some in other digits.
NUMBERS = st.sampled_from(
    ["0", "1", "1.0", "0.1", "-7", "1e3", "9007199254740993", "123456789012345678901234567890", "1e308", "-0.0"]
)
VALUES = NUMBERS | st.sampled_from(["true", "false", "null", '"x"', '""', '"\\ud800"', "[]", '[1,"a"]', "{}", '{"usage":1}'])
NAMES = ["score", "n", "_hidden", "extracted_answer", "mask_sample", "execute_only", "subset", "ng_perf", "é", 'a"b']
USAGES = st.dictionaries(st.sampled_from(["input_tokens", "n", "details", "_x"]), VALUES, max_size=3)
COST_COLUMNS = [PERFORMANCE + name for name in ("num_turns", "prompt_tokens")]
ANSWER, SUBSET = "extracted_answer", "subset"


def as_object(members: dict[str, str]) -> str:
    return "{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in members.items()) + "}"


@st.composite
def rows(draw: st.DrawFn) -> str:
    members = draw(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=5))
    if draw(st.booleans()):
        members["ng_perf"] = as_object(draw(st.dictionaries(st.sampled_from(["num_turns", "prompt_tokens", "else"]), VALUES)))
    usage = draw(st.none() | USAGES | VALUES)
    if usage is not None:
        members["response"] = as_object({"id": '"r"', "usage": as_object(usage) if isinstance(usage, dict) else usage})
    return as_object(members)


def read(lines: list[str], readers: list[NumberReader], size: int) -> dict[str, Any]:
    table = RowTable()
    for reader, begin in zip(readers, range(0, len(lines), size), strict=True):
        part = [memoryview(line.encode()) for line in lines[begin : begin + size]]
        table.add(reader.read(RowBlock(list(range(begin, begin + len(part))), part)))
    columns = {name: list(table.column(name)) for name in [*table.fields, *COST_COLUMNS]}
    told = {name: [None if math.isnan(value) else value for value in column] for name, column in columns.items()}
    rest = (table.keys, table.masked, table.answers, table.has_answers, table.subsets, table.subset_names)
    return {"columns": told, "rest": rest}


@given(st.lists(rows(), min_size=1, max_size=4), st.data())
def test_many_rows_give_the_numbers_that_each_gives_alone(shapes: list[str], data: st.DataObject) -> None:
    # Each some times in a row, so that its decoder is made, then in any order.
    more = data.draw(st.lists(st.sampled_from(shapes), max_size=60))
    lines = [line for shape in shapes for line in [shape] * 20] + more

    together = read(lines, [NumberReader(ANSWER, SUBSET)], len(lines))

    assert together == read(lines, [NumberReader(ANSWER, SUBSET) for _ in lines], 1)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param('{"score":0.5,"note":1,"response":{"usage":{"n":3}}}', id="a-number-where-text-was"),
        pytest.param('{"score":0.5,"note":"x","loss":2,"response":{"usage":{"n":3}}}', id="one-member-more"),
        pytest.param('{"score":0.5,"note":"x","response":{"usage":{"n":3,"m":4}}}', id="one-count-more"),
        pytest.param('{"score":0.5,"response":{"usage":{"n":3}}}', id="one-member-less"),
        pytest.param('{"score":0.5,"note":"x","response":{"usage":null}}', id="no-usage"),
        pytest.param('{"score":true,"note":"x","response":{"usage":{"n":3}}}', id="a-flag-where-a-number-was"),
        pytest.param('{"score":0.5,"note":"x","note":2,"response":{"usage":{"n":3}}}', id="a-member-twice"),
    ],
)
def test_a_row_of_another_shape_is_refused_by_the_decoder_of_a_shape(other: str) -> None:
    usual = '{"score":0.5,"note":"x","response":{"usage":{"n":3}}}'
    lines = [usual] * 20 + [other] + [usual] * 40

    together = read(lines, [NumberReader()], len(lines))

    assert together == read(lines, [NumberReader() for _ in lines], 1)
    made = exact_row(decode_any(usual.encode()), {"mask_sample"})
    assert made is not None
    with pytest.raises(ValueError, match=r"Expected|unknown field|missing required"):
        made.decode(other.encode())


def test_the_decoder_of_a_shape_passes_over_what_is_no_metric() -> None:
    made = exact_row(decode_any(b'{"_a":1,"execute_only":true,"n":1,"response":{"id":"r"}}'), {"mask_sample"})
    assert made is not None

    row = made.decode(b'{"_a":"x","execute_only":[],"n":2.5,"response":{"id":3,"usage":null}}')

    assert made.values(["n"], [])(row) == (2.5,)
    assert made.value("absent") is None


def test_a_shape_that_no_type_describes_has_no_decoder() -> None:
    too_many = {f"n{number}": number for number in range(300)}

    assert exact_row(too_many, set()) is None
    assert exact_row({'a"b': 1}, set()) is None

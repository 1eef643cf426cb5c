"""Rows that readers understand differently, or lose: every exporter that reads rows refuses them alike, by their line."""

from __future__ import annotations

import csv
import io
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector import jsonl
from collector.artifacts import RunArtifacts
from exporters.atif.items import MOST_ARGUMENT_LEVELS
from exporters.base import ExportResult, ExportState
from exporters.direct import export_run
from exporters.strict_rows import RowError, parse_row
from exporters.tables.columns import Kind, kinds_of, values_of

ROW: dict[str, Any] = {
    "_ng_task_index": 0,
    "_ng_rollout_index": 0,
    "reward": 1.0,
    "response": {"model": "m", "output": [{"type": "message", "content": "4"}]},
}
EXPORTERS = pytest.mark.parametrize("exporter", ["atif", "csv", "inspect", "parquet"])


def with_member(member: bytes) -> bytes:
    return json.dumps(ROW).encode()[:-1] + b", " + member + b"}"


def nested(levels: int, inner: bytes = b"1") -> bytes:
    return b'{"a":' * levels + inner + b"}" * levels


def export(exporter: str, directory: Path, *lines: bytes) -> ExportResult:
    rollouts = directory / "r.jsonl"
    rollouts.write_bytes(b"".join(line + b"\n" for line in lines))
    values = {"agent_version": "1.0.0", "session_id": "s"} if exporter == "atif" else {}
    return export_run(exporter, values, RunArtifacts(rollouts))


@EXPORTERS
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        pytest.param(with_member(b'"x": NaN'), "NaN is not JSON", id="not-a-number"),
        pytest.param(with_member(b'"x": [1e999]'), "1e999 is larger than any number", id="beyond-any-float"),
        pytest.param(with_member(b'"x": ' + b"9" * 5000), "an integer of 5000 digits", id="endless-integer"),
        pytest.param(with_member(b'"x": "\xff"'), "utf-8", id="value-that-is-no-utf-8"),
        pytest.param(with_member(b'"\xff": 1'), "utf-8", id="key-that-is-no-utf-8"),
        pytest.param(with_member(b'"x": [{"y": "\xff"}]'), "utf-8", id="no-utf-8-inside"),
        pytest.param(with_member(b'"x": ["\\q"]'), "escape", id="no-escape"),
        pytest.param(with_member(b'"reward": 0.0'), "key 'reward' occurs twice", id="key-twice"),
        pytest.param(with_member(b'"x": {"a": 1, "a": 2}'), "key 'a' occurs twice", id="key-twice-inside"),
        pytest.param(with_member(b'"x": ' + nested(300)), "nested", id="too-deep"),
        pytest.param(with_member(b'"x": ' + nested(600)), "nested", id="deeper"),
        pytest.param(with_member(b'"x": ' + nested(5000)), "nested", id="deeper-than-any-parser"),
        pytest.param(b"[1]", "a list, not an object", id="no-object"),
        pytest.param(b" ", "a blank line", id="blank"),
    ],
)
def test_a_row_that_readers_understand_differently_is_refused_by_its_line(
    exporter: str, line: bytes, reason: str, tmp_path: Path
) -> None:
    result = export(exporter, tmp_path, json.dumps(ROW).encode(), line)

    assert result.state is ExportState.FAILED
    assert "line 2: " in result.message
    assert reason in result.message
    assert str(tmp_path / "r.jsonl") in result.message
    assert [path.name for path in tmp_path.iterdir()] == ["r.jsonl"]


@pytest.mark.parametrize("exporter", ["atif", "inspect"])
@pytest.mark.parametrize("task", [True, -1, "0", 0.5, None], ids=repr)
def test_a_row_of_no_rollout_is_refused_by_its_line(exporter: str, task: object, tmp_path: Path) -> None:
    result = export(exporter, tmp_path, json.dumps({**ROW, "_ng_task_index": task}).encode())

    assert f"line 1: _ng_task_index is {task!r}, not a number from 0" in result.message


@EXPORTERS
@pytest.mark.parametrize(
    "member",
    [
        pytest.param(b'"x": "\\ud800", "\\ud801": 1', id="half-surrogates"),
        pytest.param(b'"x": "a\\u0000b\\u001b[31m\\u202e\\u2028"', id="control-signs"),
        pytest.param(b'"x": ' + b"9" * 300, id="large-integer"),
        pytest.param(b'"": 1, "a.b": 2, "a\\nb": 3, "=1+1": 4, "' + b"k" * 300 + b'": 5', id="odd-keys"),
        pytest.param(b'"x": ' + nested(240), id="deep"),
        pytest.param(b'"x": "' + b"y" * 50_000_000 + b'"', id="fifty-megabytes"),
    ],
)
def test_whatever_strict_json_holds_is_exported(exporter: str, member: bytes, tmp_path: Path) -> None:
    result = export(exporter, tmp_path, with_member(member))

    assert result.is_success, result.message[:300]


@pytest.mark.parametrize("exporter", ["atif", "inspect"])
@pytest.mark.parametrize("levels", [MOST_ARGUMENT_LEVELS - 1, MOST_ARGUMENT_LEVELS, 900, 90_000])
def test_a_model_cannot_stop_an_export_by_deep_arguments(exporter: str, levels: int, tmp_path: Path) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": nested(levels).decode()}

    result = export(exporter, tmp_path, json.dumps({**ROW, "response": {"output": [call]}}).encode())

    assert result.is_success, result.message
    if exporter == "atif":
        (made,) = json.loads((tmp_path / "r_atif" / "0-0.json").read_bytes())["steps"][-1]["tool_calls"]
        kept = made["arguments"] or made["extra"]["gym_eval"]["unparsed_arguments"]
        assert kept == (nested(levels).decode() if levels >= MOST_ARGUMENT_LEVELS else json.loads(nested(levels)))


def test_an_integer_that_a_float_would_round_keeps_its_column_from_becoming_one() -> None:
    lines = [b'{"x":9007199254740993,"y":9007199254740993,"z":1}', b'{"x":0.5,"y":1,"z":0.5}']

    kinds = kinds_of(lines)

    assert kinds == {"x": Kind.JSON, "y": Kind.LONG, "z": Kind.FLOAT}
    assert [list(values_of(line, kinds)) for line in lines] == [["9007199254740993", 9007199254740993, 1.0], ["0.5", 1, 0.5]]


@settings(deadline=None)
@given(texts=st.lists(st.text(max_size=6) | st.sampled_from(["\r", "a\rb", '"', ",", "\n", "", " "]), min_size=1, max_size=4))
def test_any_text_is_one_field_of_one_row_to_a_reader_of_csv(
    texts: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("csv")
    row = {f"k{index}": text for index, text in enumerate(texts)}

    assert export("csv", directory, json.dumps(row).encode()).is_success

    table = list(csv.reader(io.StringIO((directory / "r_table.csv").read_bytes().decode(), newline="")))
    assert table == [
        sorted(row),
        [row[key].encode("utf-16", "surrogatepass").decode("utf-16", "replace") for key in sorted(row)],
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(value=st.dictionaries(st.text(max_size=5), JSON), spaced=st.booleans())
def test_strict_json_is_read_exactly_however_it_is_written(value: dict[str, Any], spaced: bool) -> None:
    line = json.dumps(value).encode() if spaced else jsonl.dumps(value)

    assert parse_row(line + b"\n") == value


@given(st.binary(max_size=40))
def test_any_bytes_are_an_object_or_a_refused_row(line: bytes) -> None:
    with suppress(RowError):
        assert isinstance(parse_row(line), dict)


@pytest.mark.parametrize("exporter", ["atif", "inspect"])
def test_a_rollout_that_occurs_twice_is_refused_by_its_line(exporter: str, tmp_path: Path) -> None:
    lines = [json.dumps({**ROW, "_ng_rollout_index": repeat}).encode() for repeat in (0, 1, 0)]

    result = export(exporter, tmp_path, *lines)

    assert "line 3: rollout 0-0 occurs a second time" in result.message


def test_trajectories_of_two_agents_are_no_export_of_one(tmp_path: Path) -> None:
    lines = [json.dumps({**ROW, "_ng_rollout_index": n, "agent_ref": {"name": name}}).encode() for n, name in enumerate("ab")]

    result = export("atif", tmp_path, *lines)

    assert "line 2: it is of agent 'b', and earlier rows are of 'a'" in result.message

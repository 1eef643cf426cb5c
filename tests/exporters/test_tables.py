"""The exporters ``csv`` and ``parquet``: every value of every row, typed where the rows agree."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from collector.artifacts import RunArtifacts
from exporters.registry import make_exporter
from exporters.tables.columns import Kind, kinds_of, values_of
from tests.exporters.contract import LocalExporterContract


class TestCsv(LocalExporterContract):
    name = "csv"
    key = "output_fpath"

    writes = 1

    def settings(self, tmp_path: Path) -> dict[str, Any]:
        return {"output_fpath": tmp_path / "out" / "t.csv"}


class TestParquet(LocalExporterContract):
    name = "parquet"
    key = "output_fpath"

    def settings(self, tmp_path: Path) -> dict[str, Any]:
        return {"output_fpath": tmp_path / "out" / "t.parquet"}


def rows_file(tmp_path: Path, rows: list[dict[str, Any]]) -> RunArtifacts:
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return RunArtifacts(path)


def row(task: int, **more: Any) -> dict[str, Any]:
    return {"_ng_task_index": task, "_ng_rollout_index": 0, **more}


ROWS = [
    row(0, reward=1, name='a,b\n"c"', nested={"k": [1, None]}, flag=True, mixed=1),
    row(1, reward=0.5, name="ünï", nested=[1], flag=False, mixed="x", late="only here"),
    row(2, reward=None, name=""),
]  # fmt: skip


def test_a_row_is_a_row_and_objects_are_json(tmp_path: Path) -> None:
    artifacts = rows_file(tmp_path, ROWS)

    result = make_exporter("parquet", {}, artifacts).export(artifacts)

    assert result.is_success, result.message
    table = parquet.read_table(tmp_path / "r_table.parquet").to_pylist()
    assert [entry["_ng_task_index"] for entry in table] == [0, 1, 2]
    assert [entry["reward"] for entry in table] == [1.0, 0.5, None]
    assert [entry["name"] for entry in table] == ['a,b\n"c"', "ünï", ""]
    assert json.loads(table[0]["nested"]) == {"k": [1, None]}
    assert [entry["flag"] for entry in table] == [True, False, None]
    assert [entry["mixed"] for entry in table] == ["1", '"x"', None]
    assert [entry["late"] for entry in table] == [None, "only here", None]


def test_a_spreadsheet_reads_the_same_values(tmp_path: Path) -> None:
    artifacts = rows_file(tmp_path, ROWS)

    make_exporter("csv", {}, artifacts).export(artifacts)

    table = list(csv.DictReader(io.StringIO((tmp_path / "r_table.csv").read_text(), newline="")))
    assert [entry["name"] for entry in table] == ['a,b\n"c"', "ünï", ""]
    assert [entry["reward"] for entry in table] == ["1.0", "0.5", ""]
    assert [entry["flag"] for entry in table] == ["true", "false", ""]
    assert list(table[0])[:3] == ["_ng_task_index", "_ng_rollout_index", "reward"]


def test_the_line_of_a_broken_row_is_named(tmp_path: Path) -> None:
    artifacts = rows_file(tmp_path, ROWS)
    artifacts.rollouts.write_bytes(artifacts.rollouts.read_bytes() + b"{broken\n")

    result = make_exporter("parquet", {}, artifacts).export(artifacts)

    assert "line 4" in result.message
    assert not (tmp_path / "r_table.parquet").exists()


def test_an_integer_that_no_column_holds_stays_exact(tmp_path: Path) -> None:
    line = b'{"_ng_task_index":0,"_ng_rollout_index":0,"big":123456789012345678901234567890}\n'

    kinds = kinds_of([line])

    assert kinds["big"] is Kind.JSON
    assert list(values_of(line, kinds))[-1] == "123456789012345678901234567890"


def test_half_a_surrogate_pair_is_replaced() -> None:
    line = b'{"_ng_task_index":0,"_ng_rollout_index":0,"t":"a\\ud800b"}\n'

    assert list(values_of(line, kinds_of([line])))[-1] == "a\ufffdb"


SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)


@settings(deadline=None)
@given(
    st.lists(st.dictionaries(st.text(min_size=1, max_size=4), SCALARS | st.lists(SCALARS, max_size=2), max_size=4), max_size=5)
)
def test_no_value_is_lost(found: list[dict[str, Any]]) -> None:
    lines = [json.dumps(entry).encode() for entry in found]
    kinds = kinds_of(lines)

    for entry, line in zip(found, lines, strict=True):
        for (key, kind), value in zip(kinds.items(), values_of(line, kinds), strict=True):
            told = json.loads(value) if kind is Kind.JSON and value is not None else value
            assert told == entry.get(key)

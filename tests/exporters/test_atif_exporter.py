"""The exporter ``atif``: a whole folder or nothing, verified by its manifest."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import orjson
import pytest

from collector.artifacts import RunArtifacts
from collector.errors import ConfigError
from exporters.atif.documents import Document
from exporters.registry import load_run_exporter_class, make_exporter
from tests.exporters.contract import LocalExporterContract


class TestAtif(LocalExporterContract):
    name = "atif"
    key = "output_dirpath"

    def settings(self, tmp_path: Path) -> dict[str, Any]:
        return {"output_dirpath": tmp_path / "out" / "atif", "agent_version": "1.0.0"}


def rows_file(tmp_path: Path, rows: list[Any]) -> RunArtifacts:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"".join(row if isinstance(row, bytes) else orjson.dumps(row) + b"\n" for row in rows))
    return RunArtifacts(path)


def row(task: int = 0, repeat: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "_ng_task_index": task,
        "_ng_rollout_index": repeat,
        "responses_create_params": {"input": "2+2?"},
        "response": {"model": "m", "output": [{"type": "message", "content": "4"}]},
        "reward": 1.0,
        **more,
    }


def export(artifacts: RunArtifacts, folder: Path, **settings: Any) -> Any:
    values = {"output_dirpath": folder, "agent_version": "1.0.0", "session_id": "s", **settings}
    return make_exporter("atif", values, artifacts).export(artifacts)


def test_the_manifest_names_each_file_with_the_digest_of_its_bytes(tmp_path: Path) -> None:
    result = export(rows_file(tmp_path, [row(4, 1), row(5, 0)]), tmp_path / "out")

    assert result.is_success
    lines = (tmp_path / "out" / "manifest.jsonl").read_bytes().splitlines(keepends=True)
    digest = hashlib.sha256((tmp_path / "out" / "4-1.json").read_bytes()).hexdigest()
    expected = f'{{"_ng_rollout_index":1,"_ng_task_index":4,"expected_sha256":"{digest}","trajectory_path":"4-1.json"}}\n'
    assert lines[0] == expected.encode()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["4-1.json", "5-0.json", "manifest.jsonl"]
    assert "trajectories: 2" in result.details


def test_a_file_is_indented_by_two_and_ends_with_a_newline(tmp_path: Path) -> None:
    export(rows_file(tmp_path, [row()]), tmp_path / "out")

    data = (tmp_path / "out" / "0-0.json").read_bytes()
    assert data.startswith(b'{\n  "schema_version": "ATIF-v1.7",\n  "session_id": "s",\n  "trajectory_id": "s:0:0"')
    assert data.endswith(b"}\n")
    assert Document.parse(data).agent.version == "1.0.0"


def test_the_session_is_the_run_unless_it_is_named(tmp_path: Path) -> None:
    artifacts = rows_file(tmp_path, [row()])

    result = export(artifacts, tmp_path / "out", session_id=None)

    assert not result.is_success
    assert "Set session_id." in result.message


def test_all_problems_of_all_rows_are_reported_together_and_nothing_is_published(tmp_path: Path) -> None:
    rows = [
        row(0),
        row(1, response=None),
        b"{broken\n",
        row(0),
        b"\n",
        b"[1]\n",
        row(2, response={"output": "text"}),
        row(True),
        b'{"_ng_task_index": 3, "_ng_rollout_index": 0, "reward": NaN}\n',
    ]

    result = export(rows_file(tmp_path, rows), tmp_path / "out")

    assert not result.is_success
    text = "\n".join(result.lines("atif"))
    assert text.startswith("Export atif: failed")
    for number, what in [
        (2, "no ng_trajectory or response"), (3, "invalid JSON"), (4, "a second time"), (5, "blank line"), (6, "not an object"),
        (7, "no list of output items"), (8, "_ng_task_index is True"), (9, "invalid JSON"),
    ]:  # fmt: skip
        assert any(f"line {number}:" in line and what in line for line in text.splitlines()), (number, text)
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out.*"))


def test_a_run_without_rows_is_no_export(tmp_path: Path) -> None:
    result = export(rows_file(tmp_path, []), tmp_path / "out")

    assert "there are no rows" in result.message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", ["folder", "file", "dangling-link"])
def test_a_destination_that_exists_is_untouched(tmp_path: Path, form: str) -> None:
    out = tmp_path / "out"
    if form == "folder":
        out.mkdir()
        (out / "mine.txt").write_text("mine")
    elif form == "file":
        out.write_text("mine")
    else:
        out.symlink_to(tmp_path / "nowhere")

    result = export(rows_file(tmp_path, [row()]), out)

    assert not result.is_success
    assert "exists already" in result.message
    assert not (tmp_path / "nowhere").exists()
    if form == "folder":
        assert [path.name for path in out.iterdir()] == ["mine.txt"]


def test_a_parent_that_is_a_file_is_a_failed_result_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "blocked").write_text("")

    result = export(rows_file(tmp_path, [row()]), tmp_path / "blocked" / "atif")

    assert not result.is_success
    assert "blocked" in result.message
    assert (tmp_path / "blocked").read_text() == ""


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param("agent_version", 1, id="version-is-a-number"),
        pytest.param("agent_version", "  ", id="version-is-blank"),
        pytest.param("session_id", 7, id="session-is-a-number"),
        pytest.param("session_id", "", id="session-is-empty"),
        pytest.param("output_dirpath", " ", id="folder-is-blank"),
    ],
)
def test_settings_that_are_no_text_are_refused_by_name(tmp_path: Path, key: str, value: object) -> None:
    artifacts = rows_file(tmp_path, [row()])

    with pytest.raises(ConfigError, match=f"export.atif.{key}"):
        make_exporter("atif", {"output_dirpath": tmp_path / "o", "agent_version": "1", key: value}, artifacts)


def test_an_unknown_exporter_is_answered_with_the_choices() -> None:
    with pytest.raises(ConfigError, match=r"unknown exporter 'atfi'\. Did you mean 'atif'\? Choose from: atif"):
        load_run_exporter_class("atfi")


def test_a_folder_published_by_an_interrupted_export_is_recognised_only_when_it_is_whole(tmp_path: Path) -> None:
    artifacts = rows_file(tmp_path, [row(0), row(1)])
    first = export(artifacts, tmp_path / "out")
    values = {"output_dirpath": tmp_path / "out", "agent_version": "1.0.0", "session_id": "s"}
    exporter = make_exporter("atif", values, artifacts)

    assert exporter.find_complete(artifacts) == first
    (tmp_path / "out" / "stray").touch()
    assert exporter.find_complete(artifacts) is None
    (tmp_path / "out" / "stray").unlink()
    (tmp_path / "out" / "1-0.json").write_text("{}")
    assert exporter.find_complete(artifacts) is None

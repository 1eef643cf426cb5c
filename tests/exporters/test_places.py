"""Where an export may go: never to the place of a file of the run, and a ledger is a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collector.artifacts import RunArtifacts
from orchestrate.cli.main import main
from tests.merge.legacy_files import asked, row, write
from tests.merge.targets import snapshot


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunArtifacts:
    """A merged result in the current directory."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in" / "r.jsonl", [row(0), row(1)], inventory=[asked(0), asked(1)])
    assert main(["eval", "aggregate", "in/r.jsonl", "-o", "m.jsonl", "--no-health-check"]) == 0
    return RunArtifacts(tmp_path / "m.jsonl")


@pytest.mark.parametrize("name", ["m.jsonl", "m_moved.jsonl", "m_manifest.json", "m_health.json", "m_verdicts.jsonl"])
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["csv", "m.jsonl", "+output_fpath={}"], id="a-file"),
        pytest.param(["atif", "m.jsonl", "--agent-version", "1", "--output-dir", "{}"], id="a-folder"),
    ],
)
def test_the_place_of_a_file_of_the_run_is_no_destination(
    run: RunArtifacts, capsys: pytest.CaptureFixture[str], words: list[str], name: str
) -> None:
    """A table that was called like a manifest that was not there made a broken run of a whole one."""
    before = snapshot(run.rollouts.parent)
    capsys.readouterr()

    code = main(["eval", "export", *(word.format(name) for word in words)])

    assert code == 1
    assert "a file of the run" in capsys.readouterr().out
    recorded = {str(run.exports), str(run.companion("_exports.lock"))}
    after = {path: what for path, what in snapshot(run.rollouts.parent).items() if "_export_" not in path}
    assert {path: what for path, what in after.items() if path not in recorded} == before


@pytest.mark.parametrize("key", ["output_fpath", "output_dirpath"])
def test_an_empty_place_is_not_the_current_directory(run: RunArtifacts, capsys: pytest.CaptureFixture[str], key: str) -> None:
    before = snapshot(run.rollouts.parent)

    assert main(["eval", "export", "csv", "m.jsonl", f"+{key}="]) == 2

    assert f"{key}: must not be empty" in capsys.readouterr().err
    assert snapshot(run.rollouts.parent) == before


def test_a_pipe_in_the_place_of_the_ledger_is_not_waited_for(run: RunArtifacts, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(run.exports)
    capsys.readouterr()

    assert main(["eval", "export", "csv", "m.jsonl"]) == 1

    assert "no ledger" in capsys.readouterr().out
    assert not run.companion("_table.csv").exists()

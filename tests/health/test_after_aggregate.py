"""The health check that follows ``gym eval aggregate``, as in NeMo Gym: it is told, and nothing fails by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from merge.command import merge_paths
from orchestrate.cli.main import main
from tests.merge.legacy_files import asked, row, write

REPORTS = ["out_health.json", "out_verdicts.jsonl"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with rollouts of which one has no answer."""
    monkeypatch.chdir(tmp_path)
    answer = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "4"}]}
    whole = {"output": [answer], "usage": {"input_tokens": 3, "output_tokens": 4}}
    write(Path("in.jsonl"), [row(0, response=whole), row(1, response={**whole, "output": []})], inventory=[asked(0), asked(1)])
    return tmp_path


def run(*words: str) -> int:
    return main(["eval", "aggregate", "in.jsonl", "-o", "out.jsonl", *words])


def reports_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name in REPORTS)


def counts_in(directory: Path) -> dict[str, Any]:
    return json.loads((directory / "out_health.json").read_bytes())["run"]


def test_what_was_merged_is_checked_and_a_finding_changes_no_exit_code(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0

    assert reports_in(here) == REPORTS
    assert counts_in(here)["verdicts"]["unhealthy"] == 1
    assert "health: 0 healthy, 1 unhealthy, 1 unobserved (agent_turn_hollow 1)" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["--no-health-check", "+disable_health_check=true", "+merge_shards=false"])
def test_it_is_left_out_on_request_and_where_no_rows_are_merged(here: Path, word: str) -> None:
    assert run(word) == 0

    assert reports_in(here) == []


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["--health-check-ignore", "agent_turn_hollow", "--health-check-workers", "1"], id="flags"),
        pytest.param(["+health_check_ignored_checks=[agent_turn_hollow]", "+health_check_workers=1"], id="keys"),
    ],
)
def test_checks_are_left_out_by_the_words_of_nemo_gym(here: Path, words: list[str]) -> None:
    assert run(*words) == 0

    assert counts_in(here)["verdicts"]["unhealthy"] == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param(["--health-check-ignore", "agent_turn_holow"], "Did you mean agent_turn_hollow?", id="no-check"),
        pytest.param(["--health-check-workers", "0"], "'0' is not a whole number from 1", id="no-worker"),
        pytest.param(["+health_check_workers=0"], "health_check_workers is 0", id="no-worker-by-key"),
        pytest.param(["+health_check_ignored_checks=agent_turn_hollow"], "It is a list", id="no-list"),
    ],
)
def test_what_is_no_setting_of_it_is_refused_before_anything_is_merged(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    before = sorted(here.iterdir())

    try:
        code = run(*words)
    except SystemExit as error:
        code = error.code

    assert (code, sorted(here.iterdir())) == (2, before)
    assert told in capsys.readouterr().err


def test_a_check_that_cannot_be_made_is_a_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "out_health.json").mkdir()

    assert run() == 0

    assert "health: not checked: out_health.json" in capsys.readouterr().err
    assert (here / "out.jsonl").is_file()


def test_a_partial_result_is_checked_too(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(Path("in.jsonl"), [row(0)], inventory=[asked(0), asked(1)])

    assert run("--allow-partial") == 6

    assert "health: 0 healthy" in capsys.readouterr().err
    assert (here / "out.partial_health.json").is_file()


def test_merging_by_the_library_checks_nothing(here: Path) -> None:
    merge_paths(["in.jsonl"], Path("out.jsonl"))

    assert reports_in(here) == []

"""Paths that lead nowhere, to no file, or to no text: one line with the documented exit code, and nothing is made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from collector.errors import NotFoundError
from collector.settings import RunSettings
from orchestrate.cli.main import main
from orchestrate.runs.directory import RunDir
from orchestrate.runs.index import find_run, remember
from tests.merge.legacy_files import asked, row, write


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Rows of a run and a dataset in the current directory."""
    monkeypatch.chdir(tmp_path)
    Path("data.jsonl").write_text('{"q": "2+2?", "expected_answer": "4"}\n')
    asked_for = [{**asked(task), "expected_answer": "4"} for task in range(2)]
    return write(tmp_path / "in" / "rollouts.jsonl", [row(0), row(1)], inventory=asked_for)


def told(capsys: pytest.CaptureFixture[str]) -> str:
    """What the last command said; AssertionError for more than a line."""
    out, err = capsys.readouterr()
    said = err or out
    assert "Traceback" not in said
    assert len(err.splitlines()) <= 1
    return said


_RUN = (
    "run",
    "-i",
    "data.jsonl",
    "+prompt_config.user='{q}'",
    "-m",
    "m",
    "--model-url",
    "http://127.0.0.1:9",
    "--verifier",
    "number",
)
_INIT = ("init", "--input", "data.jsonl", "--model", "m", "--model-url", "http://127.0.0.1:9/v1", "--prompt", "{q}")


@pytest.mark.parametrize(
    ("words", "codes"),
    [
        pytest.param(("aggregate", "in/rollouts.jsonl", "-o", "loop.jsonl"), {4, 5}, id="aggregate"),
        pytest.param(("merge", "in/rollouts.jsonl", "-o", "loop.jsonl"), {4, 5}, id="merge"),
        pytest.param(("export", "csv", "in/rollouts.jsonl", "+allow_partial=true", "+output_fpath=loop.jsonl"), {1}, id="csv"),
        pytest.param(
            ("export", "atif", "in/rollouts.jsonl", "+allow_partial=true", "+agent_version=a", "--output-dir", "loop.jsonl"),
            {1},
            id="atif",
        ),
        pytest.param((*_RUN, "-o", "loop.jsonl"), {2, 4, 5}, id="run"),
        pytest.param(
            ("reverify", "--rollouts", "in/rollouts.jsonl", "-o", "loop.jsonl", "--verifier", "number"),
            {2, 4, 5},
            id="reverify",
        ),
        pytest.param((*_INIT, "--verifier", "number", "--compute", "local", "loop.jsonl"), {2, 4, 5}, id="init"),
        pytest.param(("aggregate", "loop*.jsonl", "-o", "out.jsonl"), {3}, id="pattern-of-inputs"),
    ],
)
def test_a_loop_of_links_is_told_and_stays(
    rows: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], codes: set[int]
) -> None:
    loop = Path("loop.jsonl")
    loop.symlink_to("loop.jsonl")

    code = main(["eval", *words])

    assert code in codes
    assert "loop" in told(capsys)
    assert loop.readlink() == Path("loop.jsonl")


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("aggregate", "pipe.jsonl", "-o", "out.jsonl"), id="rollouts"),
        pytest.param(("run", "-i", "pipe.jsonl", *_RUN[3:], "-o", "out.jsonl"), id="dataset"),
        pytest.param(("reverify", "--rollouts", "pipe.jsonl", "-o", "out.jsonl", "--verifier", "number"), id="answers"),
    ],
)
def test_an_input_that_can_be_read_once_only_is_refused(
    rows: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    """Nobody ever wrote into it, and the command waited for ever; /dev/zero filled the memory."""
    os.mkfifo("pipe.jsonl")

    code = main(["eval", *words])

    assert code == 2
    assert "no regular file" in told(capsys)
    assert not Path("out.jsonl").exists()


def test_an_endless_file_is_no_yaml(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "submit", "/dev/zero", "--dry-run"]) == 2
    assert "larger than" in told(capsys)


@pytest.mark.parametrize("word", [".", "/"])
@pytest.mark.parametrize("command", [("compare", "in/rollouts.jsonl"), ("merge", "--check")])
def test_a_directory_without_a_name_is_not_there(
    rows: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...], word: str
) -> None:
    main(["eval", "aggregate", "in/rollouts.jsonl", "-o", "in/rollouts2.jsonl"])
    capsys.readouterr()
    first = tuple(text.replace("rollouts", "rollouts2") for text in command)

    assert main(["eval", *first, word]) == 3
    assert told(capsys)


def test_nothing_is_no_beginning_of_the_only_run(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(rows.parent.parent / "state"))
    run = rows.parent.parent / "math-1f2e3d4c"
    run.mkdir()
    (run / "plan.json").write_text("{}")
    remember(RunDir(run), at="2026-01-01T00:00:00+00:00")
    assert find_run("math").root == run

    with pytest.raises(NotFoundError):
        find_run("")


@pytest.mark.parametrize("command", ["status", "logs", "run", "export", "doctor", "init"])
def test_a_word_that_is_no_utf_8_is_refused_by_itself(tmp_path: Path, command: str) -> None:
    """It is a file's name on Linux, and ended in a traceback wherever it was written or told."""
    program = [sys.executable, "-m", "orchestrate.cli.main", "eval", command, b"a\xff"]
    root = Path(__file__).parents[2]

    done = subprocess.run(program, capture_output=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(root)}, check=False)

    assert done.returncode == 2
    assert done.stderr.decode().splitlines()[0].startswith(f"gym eval {command}: 'a\\udcff' is no UTF-8")
    assert not list(tmp_path.iterdir())


def test_a_path_with_a_nul_is_refused_under_its_key() -> None:
    with pytest.raises(ValidationError, match=r"input_jsonl_fpath\n.*must not hold a NUL"):
        RunSettings.model_validate({"input_jsonl_fpath": "a\0b", "output_jsonl_fpath": "o.jsonl"})


@pytest.mark.parametrize("line", ['"\\ud800": 1', 'job: {name: "a\\udfff"}', 'job: {output_path: ["\\ud8ff"]}'])
def test_a_text_that_is_no_utf_8_in_a_yaml_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    (tmp_path / "s.yaml").write_text(f"{line}\n")

    assert main(["eval", "submit", str(tmp_path / "s.yaml"), "--dry-run"]) == 2
    assert "holds a lone surrogate" in told(capsys)


@pytest.mark.parametrize(("key", "value"), [("num_repeats", 10**6 + 1), ("limit", 10**20), ("num_samples_in_parallel", 2**31)])
def test_a_count_that_nobody_could_reach_is_refused_under_its_key(key: str, value: int) -> None:
    """So many repeats were prepared without end, and so high a limit was a traceback."""
    with pytest.raises(ValidationError, match=rf"{key}[\s\S]*less than or equal to"):
        RunSettings.model_validate({"input_jsonl_fpath": "a", "output_jsonl_fpath": "o.jsonl", key: value})


@pytest.mark.parametrize(
    "words", [(*_RUN, "-o", "o.jsonl"), ("report", "."), ("doctor",), ("reverify", "--rollouts", "a", "-o", "o.jsonl")]
)
def test_a_directory_that_was_removed_under_a_command_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    assert main(["eval", *words]) == 5
    assert "the current directory is there no more" in told(capsys)


@pytest.mark.parametrize(("since", "code"), [("99999999999d", 0), ("9" * 13 + "h", 2), ("9" * 5000 + "w", 2)])
def test_a_time_longer_than_years_are_counted_is_no_traceback(
    capsys: pytest.CaptureFixture[str], since: str, code: int
) -> None:
    assert main(["eval", "list", "--since", since]) == code
    assert told(capsys)

"""The file that ``gym eval init`` writes: nobody else's is replaced, whenever it came."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from collector.errors import ConfigError, RefusedError
from orchestrate.cli.init import main
from orchestrate.cli.main import main as gym
from orchestrate.operate import starter
from tests.orchestrate.project import tree


def arguments(folder: Path) -> list[str]:
    rows = folder / "sums.jsonl"
    rows.write_text(json.dumps({"question": "2+2?", "expected_answer": "4"}) + "\n")
    return [str(folder / "eval.yaml"), "--input", str(rows), "--model", "m", "--model-url", "http://127.0.0.1:9/v1"]


@pytest.fixture
def late_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that somebody else makes while the questions are answered."""
    file, real = tmp_path / "eval.yaml", starter.starter_yaml

    def slowly(answers: starter.Answers) -> str:
        file.write_text("mine: 1\n")
        return real(answers)

    monkeypatch.setattr(starter, "starter_yaml", slowly)
    return file


def test_a_file_that_comes_while_questions_are_answered_stays(tmp_path: Path, late_file: Path) -> None:
    with pytest.raises(RefusedError, match="it exists already"):
        main(arguments(tmp_path))

    assert late_file.read_text() == "mine: 1\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["eval.yaml", "sums.jsonl"]


def test_a_file_is_replaced_by_who_says_so(tmp_path: Path, late_file: Path) -> None:
    assert main([*arguments(tmp_path), "--force"]) == 0

    assert "benchmarks:" in late_file.read_text()


ROWS = '{"question": "2+2?"}\n{"question": "3+3?"}\n'


def linked(path: Path, to: Path) -> None:
    path.symlink_to(to)


def hard_linked(path: Path, to: Path) -> None:
    path.hardlink_to(to)


def written(path: Path, to: Path) -> None:
    path.write_bytes(to.read_bytes())


@pytest.mark.parametrize("put", [linked, written], ids=["link", "file"])
@pytest.mark.parametrize("text", [ROWS, ROWS[:21], "sampled in May\n"], ids=["rows", "a-row", "notes"])
def test_what_is_no_yaml_of_a_submission_is_replaced_by_nobody(
    tmp_path: Path, put: Callable[[Path, Path], None], text: str
) -> None:
    """``--force`` wrote over rows and notes, those behind a link too."""
    (tmp_path / "theirs").write_text(text)
    (_, *flags) = arguments(tmp_path)
    put(tmp_path / "eval", tmp_path / "theirs")
    before = tree(tmp_path)

    with pytest.raises(RefusedError, match="holds no YAML of a submission"):
        main([str(tmp_path / "eval"), *flags, "--force"])

    assert tree(tmp_path) == before


@pytest.mark.parametrize("put", [linked, hard_linked], ids=["link", "hard-link"])
def test_the_dataset_is_never_replaced(tmp_path: Path, put: Callable[[Path, Path], None]) -> None:
    (_, *flags) = arguments(tmp_path)
    put(tmp_path / "eval.yaml", tmp_path / "sums.jsonl")
    before = tree(tmp_path)

    with pytest.raises(RefusedError):
        main([str(tmp_path / "eval.yaml"), *flags, "--force"])
    assert tree(tmp_path) == before
    with pytest.raises(RefusedError):
        main([str(tmp_path / "sums.jsonl"), *flags, "--force"])
    assert tree(tmp_path) == before


def _linked_to(place: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(place)


@pytest.mark.parametrize(
    ("put", "told"),
    [
        pytest.param(os.mkdir, "is no regular file", id="directory"),
        pytest.param(os.mkfifo, "is no regular file", id="pipe"),
        pytest.param(_linked_to("nothing"), "leads to no file", id="dangling"),
        pytest.param(_linked_to("pipe"), "leads to no file", id="link-to-a-pipe"),
        pytest.param(_linked_to("eval.yaml"), "leads to no file", id="loop"),
    ],
)
def test_what_is_no_file_is_replaced_by_nobody(tmp_path: Path, put: Callable[[Path], None], told: str) -> None:
    words = arguments(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    put(tmp_path / "eval.yaml")
    before = tree(tmp_path)

    with pytest.raises(RefusedError, match=told):
        main([*words, "--force"])

    assert tree(tmp_path) == before


def test_a_yaml_with_a_mistake_is_replaced_by_who_says_so(tmp_path: Path) -> None:
    words = arguments(tmp_path)
    (tmp_path / "eval.yaml").write_text("driver: [\n")

    assert main([*words, "--force"]) == 0


def test_a_dataset_is_read_as_a_run_reads_it(tmp_path: Path) -> None:
    """With a byte order mark and a blank line in front, which a run passes over, its first row was no JSON."""
    words = arguments(tmp_path)
    (tmp_path / "sums.jsonl").write_bytes(b"\xef\xbb\xbf\r\n" + (tmp_path / "sums.jsonl").read_bytes())

    assert main(words) == 0


def test_a_pipe_is_no_dataset(tmp_path: Path) -> None:
    words = arguments(tmp_path)
    (tmp_path / "sums.jsonl").unlink()
    os.mkfifo(tmp_path / "sums.jsonl")

    with pytest.raises(ConfigError, match="no regular file"):
        main(words)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        pytest.param(
            ["--compute", "local", "--model-url", "http://h/v1", "--partition", "batch", "--gpus", "2"],
            "--partition, --gpus: on this machine there are no such settings",
            id="slurm-s-on-this-machine",
        ),
        pytest.param(
            ["--command", "serve {port}", "--api-key-env", "KEY"], "--api-key-env is for a server at", id="own-server"
        ),
    ],
)
def test_no_flag_is_dropped_without_a_word(
    tmp_path: Path, flags: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    *common, _, _ = arguments(tmp_path)

    with pytest.raises(SystemExit, match="2"):
        gym(["eval", "init", *common, *flags])

    assert told in capsys.readouterr().err
    assert not (tmp_path / "eval.yaml").exists()

"""The file that ``gym eval init`` writes: nobody else's is replaced, whenever it came."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collector.errors import RefusedError
from orchestrate.cli.init import main
from orchestrate.operate import starter


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

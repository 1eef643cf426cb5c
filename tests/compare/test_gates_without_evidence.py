"""Gates over runs that measured nothing, or not what is guarded: undecided, while a metric that nobody has is a mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrate.cli.main import main
from tests.compare.sides import write_side
from tests.merge.legacy_files import asked, failure, row, write

GATE = ("--gate", "mean/reward:min_delta=-0.01")


def failed_run(directory: Path) -> Path:
    """Ten rollouts, none of which gave an answer, merged."""
    ended = [failure(task, _ng_failure_terminal=True) for task in range(10)]
    write(directory / "in.jsonl", [], failures=ended, inventory=[asked(task) for task in range(10)])
    assert main(["eval", "aggregate", str(directory / "in.jsonl"), "-o", str(directory / "out.jsonl")]) == 7
    return directory / "out.jsonl"


@pytest.mark.parametrize("is_base_measured", [True, False])
def test_a_gate_over_a_run_that_measured_nothing_is_undecided(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], is_base_measured: bool
) -> None:
    """Where the base had failed, too, the gate itself was called wrong, with an empty list of what could be guarded."""
    failed = failed_run(tmp_path / "failed")
    base = write_side(tmp_path / "base.jsonl", {task: [1.0] for task in range(10)}) if is_base_measured else failed
    capsys.readouterr()

    assert main(["eval", "compare", str(base), str(failed), *GATE]) == 9

    assert "gate mean/reward at least -0.01: undecided" in capsys.readouterr().out


def test_of_several_candidates_one_may_lack_what_is_guarded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failed = failed_run(tmp_path / "failed")
    good = write_side(tmp_path / "good.jsonl", {task: [1.0] for task in range(10)})
    capsys.readouterr()

    assert main(["eval", "compare", str(failed), str(good), str(failed), *GATE]) == 9

    assert "undecided (neither side has it)" in capsys.readouterr().out


def test_a_metric_that_no_run_has_is_a_mistake_and_nothing_is_written(tmp_path: Path) -> None:
    base = write_side(tmp_path / "base.jsonl", {task: [1.0] for task in range(10)})

    assert main(["eval", "compare", str(base), str(base), "--gate", "mean/rewrad:min_delta=0"]) == 2

    assert [path.name for path in tmp_path.iterdir()] == ["base_aggregate_metrics.json"]


def test_names_of_metrics_are_one_line_each_and_move_no_cursor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"a\nb": 1, "c\x1b[2Jd": 2, "e\u202ef": 3, "g|h": 4}
    rows = [row(task, **names) for task in range(10)]
    write(tmp_path / "in.jsonl", rows, inventory=[asked(task) for task in range(10)])
    assert main(["eval", "aggregate", "in.jsonl", "-o", "out.jsonl"]) == 0
    capsys.readouterr()

    assert main(["eval", "compare", "out.jsonl", "out.jsonl"]) == 0

    texts = [capsys.readouterr().out, Path("compare_report.md").read_text()]
    for text in texts:
        assert all(name in text for name in ("mean/a<U+000A>b ", "mean/c<U+001B>[2Jd ", "mean/e<U+202E>f "))
        assert all(line.isprintable() for line in text.splitlines())
    assert "| mean/g\\|h |" in texts[1]

"""A report that is written where a link stands: rows, datasets and results of others behind it stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrate.cli.main import main
from tests.merge.legacy_files import asked, failure, row, write
from tests.merge.targets import snapshot

_KEPT = ("in/r.jsonl", "in/r_materialized_inputs.jsonl", "notes.txt", "m.jsonl")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Rows that can be merged, a result of them, and somebody's notes, in the current directory."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in" / "r.jsonl", [row(0), row(1, reward=0.0)], inventory=[asked(0), asked(1)])
    assert main(["eval", "aggregate", "in/r.jsonl", "-o", "m.jsonl"]) == 0
    Path("notes.txt").write_text("sampled in May\n")
    return tmp_path


@pytest.mark.parametrize("kept", _KEPT)
@pytest.mark.parametrize(
    ("link", "words"),
    [
        pytest.param("new_coverage.json", ("aggregate", "in/r.jsonl", "-o", "new.jsonl"), id="coverage"),
        pytest.param("new_aggregate_metrics.json", ("aggregate", "in/r.jsonl", "-o", "new.jsonl"), id="metrics"),
        pytest.param("new_merge.json", ("merge", "in/r.jsonl", "-o", "new.jsonl"), id="receipt"),
        pytest.param("in/r_health.json", ("health-check", "in/r.jsonl"), id="health"),
        pytest.param("in/r_verdicts.jsonl", ("health-check", "in/r.jsonl"), id="verdicts"),
        pytest.param("report.html", ("report", "m.jsonl"), id="report"),
        pytest.param("compare_report.json", ("compare", "m.jsonl", "m.jsonl"), id="comparison"),
        pytest.param("compare_report.md", ("compare", "m.jsonl", "m.jsonl"), id="comparison-to-read"),
    ],
)
def test_a_report_goes_through_no_link_to_another_kind_of_file(
    place: Path, capsys: pytest.CaptureFixture[str], link: str, words: tuple[str, ...], kept: str
) -> None:
    """A coverage replaced an input that its link led to, and the merge ended with 0."""
    Path(link).symlink_to(place / kept)
    before = snapshot(place)
    capsys.readouterr()

    assert main(["eval", *words]) == 4

    (line,) = capsys.readouterr().err.splitlines()
    assert Path(link).name in line
    assert snapshot(place) == before


@pytest.mark.parametrize("link", ["new_coverage.json", "new_aggregate_metrics.json", "new_merge.json"])
def test_the_reports_of_others_behind_a_link_are_not_replaced(place: Path, link: str) -> None:
    write(place / "other" / "r.jsonl", [row(5)], inventory=[asked(5)])
    Path(link).symlink_to(f"m{link.removeprefix('new')}")
    before = snapshot(place)

    assert main(["eval", "aggregate", "other/r.jsonl", "-o", "new.jsonl"]) == 4

    assert snapshot(place) == before


def test_reports_of_the_same_rows_are_replaced_through_their_links(place: Path) -> None:
    tags = (".jsonl", "_coverage.json", "_aggregate_metrics.json", "_merge.json")
    for tag in tags:
        Path(f"new{tag}").symlink_to(f"m{tag}")
    Path("m_coverage.json").write_text("{}")

    assert main(["eval", "aggregate", "in/r.jsonl", "-o", "new.jsonl"]) == 0

    assert all(Path(f"new{tag}").is_symlink() for tag in tags)
    assert '"measured": 2' in Path("m_coverage.json").read_text()


@pytest.mark.parametrize("what", ["directory", "link-to-nothing"])
def test_a_report_that_cannot_be_replaced_is_told_before_rows_are_written(place: Path, what: str) -> None:
    report = Path("new_aggregate_metrics.json")
    if what == "directory":
        report.mkdir()
    else:
        report.symlink_to("gone.json")
    before = snapshot(place)

    assert main(["eval", "aggregate", "in/r.jsonl", "-o", "new.jsonl"]) == 4

    assert snapshot(place) == before


def test_a_partial_result_of_others_keeps_a_whole_one_from_its_place(place: Path) -> None:
    """It was removed without a word, since a whole result takes the place of its own partial one."""
    write(place / "other" / "r.jsonl", [row(5)], failures=[failure(6)], inventory=[asked(5), asked(6)])
    assert main(["eval", "aggregate", "other/r.jsonl", "-o", "new.jsonl", "--allow-partial"]) == 6
    before = snapshot(place)

    assert main(["eval", "aggregate", "in/r.jsonl", "-o", "new.jsonl"]) == 4

    assert snapshot(place) == before


def test_rows_under_a_partial_name_that_nothing_tells_of_stay(place: Path) -> None:
    Path("new.partial.jsonl").write_text('{"reward": 1}\n')

    assert main(["eval", "aggregate", "in/r.jsonl", "-o", "new.jsonl"]) == 0

    assert Path("new.partial.jsonl").read_text() == '{"reward": 1}\n'

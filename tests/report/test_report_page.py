"""What a report says: scores with what they rest on, states that add up, sessions that were cut off, nothing it was not asked for."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from collector.errors import NotFoundError, RefusedError, RequestError
from orchestrate.cli.report import main
from orchestrate.report.bins import distribute
from orchestrate.report.gather import gather
from orchestrate.report.text import LIMIT, plain
from tests.health.rows import response, row, write
from tests.merge.build import answered, fill, plan
from tests.report.build import make_run
from tests.support.requirements import require
from tests.support.wheel import missing_wheel, unpack_rollouts

ROOT = Path(__file__).resolve().parents[2]


def page_of(target: Path, *arguments: object) -> str:
    output = target.parent / "page.html"
    assert main([str(target), "-o", str(output), *map(str, arguments)]) == 0
    return output.read_text()


def words(page: str) -> str:
    """The page as a person reads it."""
    return " ".join(re.sub(r"<[^>]*>", " ", re.sub(r"<(style|svg).*?</\1>", " ", page, flags=re.DOTALL)).split())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a preempted run."""
    directory = tmp_path_factory.mktemp("run") / "run"
    make_run(directory, shards=4, tasks=40, repeats=2)
    return directory


def test_a_score_stands_beside_what_it_rests_on_and_its_bounds(run: Path) -> None:
    coverage = gather(str(run), content=False).benchmarks[0].coverage
    assert coverage is not None
    assert coverage.bounds is not None

    text = words(page_of(run))

    low, high = coverage.bounds
    assert f"{coverage.mean:.4g} mean reward of {coverage.measured} of {coverage.expected} rollouts" in text
    assert f"between {low:.4g} and {high:.4g}" in text
    assert f"unfinished: {coverage.unfinished} rollouts" in text


def test_states_add_up_to_what_was_expected(run: Path) -> None:
    text = words(page_of(run))

    states = text[text.index("States ") : text.index("Shards, by")]
    assert sum(map(int, re.findall(r"\b\d+\b", states))) == 80


def test_preempted_sessions_are_told_from_those_that_ended(run: Path) -> None:
    facts = gather(str(run), content=False).benchmarks[0]

    assert [(span.shard, span.number) for span in facts.sessions if span.is_cut_off] == [(0, 0), (2, 0)]
    assert "8 sessions on 4 shards; 2 cut off" in words(page_of(run))


def test_text_of_models_is_left_out_unless_asked_for(run: Path) -> None:
    assert "nirts" not in page_of(run)
    assert "provider_unavailable" in page_of(run)

    content = page_of(run, "--content")

    assert "&lt;script&gt;document.title=" in content
    assert "<script" not in content
    assert "<img" not in content
    assert "\u202e" not in content
    assert "\x1b" not in content


def test_one_page_needs_nothing_from_elsewhere(run: Path) -> None:
    page = page_of(run)

    outside = set(re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?([^\"')>\s]+)", page))
    assert {link for link in outside if not link.startswith(("#", "data:"))} == set()
    assert "@import" not in page
    identifiers = re.findall(r'\bid="([^"]+)"', page)
    assert len(identifiers) == len(set(identifiers))


def test_a_report_changes_no_file_of_the_run(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}

    page_of(run, "--content")

    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_an_answer_of_ten_megabytes_stays_short(tmp_path: Path) -> None:
    saved = write(tmp_path / "saved.jsonl", [row(0, response=response("\u202e<b>" + "x" * 10_000_000))])

    page = page_of(saved.rollouts, "--content")

    assert len(page) < 100_000
    assert "(10,000,004 characters)" in page
    assert "&lt;U+202E&gt;&lt;b&gt;xxx" in page


def test_rows_without_a_journal_are_shown_without_a_claim_of_coverage(tmp_path: Path) -> None:
    saved = write(tmp_path / "saved.jsonl", [row(0), row(1, reward=0.0), row(2, mask_sample=True), b"half\n"])

    text = words(page_of(saved.rollouts))

    assert "0.5 mean reward of 2 scored rows" in text
    assert "how many were expected is not known" in text
    assert "cannot be read: 1 row" in text


def test_a_shard_that_cannot_be_read_is_named_and_its_rollouts_stay_expected(tmp_path: Path) -> None:
    made = make_run(tmp_path / "run", shards=3, tasks=30, repeats=1)
    made.shards[1].journal.write_bytes(b"nonsense\n")

    facts = gather(str(tmp_path / "run"), content=False).benchmarks[0]

    assert facts.coverage is not None
    assert facts.coverage.expected == sum(facts.coverage.states.values()) == 30
    assert facts.coverage.unfinished == 10 + sum(shard.coverage.unfinished for shard in facts.shards if shard.coverage)
    assert "shard 1: " in words(page_of(tmp_path / "run"))
    assert facts.projection == "not merged; cannot be read: 1 shard"


def test_a_run_without_a_score_has_none(tmp_path: Path) -> None:
    made = plan(tmp_path / "bench", shards=1, tasks=3)
    fill(made, 0, lambda task, repeat: answered(None))

    text = words(page_of(tmp_path / "bench"))

    assert "no score measured are 0 of 3 rollouts" in text


def test_a_directory_without_rollouts_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        main([str(tmp_path), "-o", str(tmp_path / "page.html")])

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("tag", ["_coverage.json", "_aggregate_metrics.json", "_merge.json"])
def test_a_companion_of_a_run_is_no_run(run: Path, tmp_path: Path, tag: str) -> None:
    """Its lines were counted as rows that cannot be read."""
    (companion := tmp_path / f"copy{tag}").write_text("{}\n")

    with pytest.raises(NotFoundError, match="a companion of a run"):
        main([str(companion), "-o", str(tmp_path / "page.html")])


def test_a_report_makes_the_directory_it_belongs_in(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "reports" / "may" / "page.html"

    assert main([str(run), "-o", str(target)]) == 0

    assert target.is_file()


def test_a_report_cannot_replace_rollouts_by_mistake(run: Path) -> None:
    with pytest.raises(RefusedError, match=r"ends in \.html"):
        main([str(run), "-o", str(run / "rollouts.jsonl")])


def test_without_the_plotting_library_the_command_says_what_to_install(run: Path, tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['pygal'] = None; import importlib.util as u; u.find_spec = lambda name: None\n"
    program = f"{hidden}from orchestrate.cli.main import main; sys.exit(main(['eval', 'report', {str(run)!r}]))"

    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)

    assert done.returncode == 2
    assert done.stderr == "gym eval report: a report needs pygal, which is not installed. Run: pip install 'gym-eval[report]'\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("plain", "plain", id="plain"),
        pytest.param("a\u202eb", "a<U+202E>b", id="direction-override"),
        pytest.param("a\ud800b", "a<U+D800>b", id="half-a-character"),
        pytest.param("a\x00\x1b[0m", "a<U+0000><U+001B>[0m", id="control"),
        pytest.param("zero\u200bwidth", "zero<U+200B>width", id="invisible"),
        pytest.param("שלום 你好 é", "שלום 你好 é", id="languages-stay"),
        pytest.param("x" * (LIMIT + 1), "x" * LIMIT + "… (601 characters)", id="long"),
    ],
)
def test_hidden_characters_are_written_out(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_a_distribution_counts_each_value_once() -> None:
    values = [float(i % 37) * 1.5 for i in range(5000)] + [1e6, float("nan"), float("inf")]

    found = distribute(values)

    assert found is not None
    assert sum(found.counts) == 5001
    assert found.labels[-1].startswith("≥ ")
    assert dict(found.figures)["most"] == "1,000,000"
    assert distribute([]) is None


#: Servers whose example rollouts are rows without a result.
NO_ROLLOUTS = ("genrm_compare", "multichallenge")


def test_every_example_file_of_other_people_has_a_report(tmp_path: Path) -> None:
    require("files of other people", missing_wheel())
    paths = unpack_rollouts(tmp_path)

    datasets = {path for path in paths if path.name.startswith(tuple(f"resources_servers__{name}__" for name in NO_ROLLOUTS))}

    assert len(datasets) == len(NO_ROLLOUTS)
    for path in paths:
        if path in datasets:
            with pytest.raises(RequestError, match="its rows are no rollouts"):
                gather(str(path), content=True)
            continue
        facts = gather(str(path), content=True).benchmarks[0]
        assert facts.coverage is None
        assert facts.figures.rows + facts.figures.unreadable == sum(bool(line.strip()) for line in path.open("rb"))

    page = page_of(max(paths, key=lambda path: path.stat().st_size), "--content")
    assert "<script" not in page

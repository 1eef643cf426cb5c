"""A report in a real browser: drawn, quiet, readable on a phone, and harmless whatever a model wrote."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrate.cli.report import main
from tests.report.build import make_run
from tests.support.browser import look_at, missing_browser
from tests.support.requirements import require

PHONE = 390
SCREEN = 1280


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], list[str]]:
    """Both forms of one report at both widths; one start of the browser serves all tests."""
    require("a report in a browser", missing_browser())
    directory = tmp_path_factory.mktemp("report")
    make_run(directory / "run")
    make_run(directory / "run", shards=12, tasks=36, repeats=1, name="a-benchmark-with-a-rather-long-name")
    main([str(directory / "run"), "-o", str(directory / "plain.html")])
    main([str(directory / "run"), "-o", str(directory / "content.html"), "--content"])
    return look_at(directory, [(page, width) for page in ("plain.html", "content.html") for width in (PHONE, SCREEN)])


def test_every_plot_is_drawn_and_the_console_stays_empty(seen: tuple[list[dict[str, Any]], list[str]]) -> None:
    pages, console = seen

    assert console == []
    # One for all benchmarks; for each of the two a timeline and four distributions.
    assert [page["drawn"] for page in pages] == [1 + 2 * 5] * 4


def test_no_width_needs_sideways_scrolling(seen: tuple[list[dict[str, Any]], list[str]]) -> None:
    for page in seen[0]:
        assert page["needed"] <= page["width"], page["page"]
    assert {page["width"] <= PHONE for page in seen[0]} == {True, False}


def test_text_of_a_model_stays_text(seen: tuple[list[dict[str, Any]], list[str]]) -> None:
    for page in seen[0]:
        assert page["title"] == "run"
        assert page["active"] == 0
        assert page["outside"] == []
        assert ("<script>document.title='owned'</script>" in page["text"]) is (page["page"] == "content.html")
        assert "\u202e" not in page["text"]

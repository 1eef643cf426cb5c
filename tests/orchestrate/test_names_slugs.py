"""Names of benchmarks as names of files."""

from __future__ import annotations

import re
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrate.names import name_problems, slug


@given(st.text(min_size=1))
def test_a_slug_can_be_turned_back(name: str) -> None:
    name = name.encode(errors="replace").decode()

    assert unquote(slug(name).replace("+", "%"), errors="strict") == name


@given(st.text(min_size=1))
def test_a_slug_is_a_plain_file_name(name: str) -> None:
    text = slug(name.encode(errors="replace").decode())

    assert re.fullmatch(r"[A-Za-z0-9_+][A-Za-z0-9._+-]*", text)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aime24", "aime24"),
        ("gpqa/diamond", "gpqa+2Fdiamond"),
        ("a b", "a+20b"),
        (".x", "+2Ex"),
        ("a+b", "a+2Bb"),
        ("-x", "+2Dx"),
    ],
)
def test_ordinary_names_stay_readable(name: str, expected: str) -> None:
    assert slug(name) == expected


@pytest.mark.parametrize(
    ("names", "told"),
    [
        pytest.param(["plan.json"], "a file of the run directory", id="reserved"),
        pytest.param(["x" * 161], "limit is 160", id="too-long"),
        pytest.param(["é" * 60], "needs 360 bytes", id="too-long-once-encoded"),
        pytest.param([""], "a name is empty", id="empty"),
        pytest.param(["Math", "math"], "ignore case", id="case"),
    ],
)
def test_names_that_cannot_be_directories_are_refused(names: list[str], told: str) -> None:
    (problem,) = name_problems(names, prefix="driver.benchmarks")

    assert told in problem

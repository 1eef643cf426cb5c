"""One of a thing is not said as many."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.text.counted import agreeing, counted
from tests.orchestrate.project import Project

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("collector", "merge", "exporters", "orchestrate")
# What messages count, behind at most one adjective: "3 unfinished shards".
MANY = re.compile(
    r" (?!still )([a-z]+ )?(rollouts|rows|shards|jobs|tasks|attempts|files|lines|logs|locks|sessions|answers|failures|inputs|items|turns|"
    r"runs|requeues|checks|metrics|params|calls|reasons|segments|invocations|mixtures|arrays|tokens|bytes|tools)\b"
)


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "0 shards"), (1, "1 shard"), (2, "2 shards"), (12345, "12,345 shards")],
    ids=["0", "1", "2", "many"],
)
def test_a_number_has_its_noun(number: int, said: str) -> None:
    assert counted(number, "shard") == said


@pytest.mark.parametrize(
    ("number", "of", "said"),
    [(0, 1, "0 of 1 shard are"), (1, 1, "1 of 1 shard is"), (1, 3, "1 of 3 shards is"), (2, 1234, "2 of 1,234 shards are")],
    ids=["none of one", "one of one", "one of many", "some of many"],
)
def test_the_noun_agrees_with_the_whole_and_the_verb_with_the_part(number: int, of: int, said: str) -> None:
    told = f"{counted(number, 'shard', of=of)} {agreeing(number, 'are')}"

    assert told == said


@pytest.mark.parametrize(
    ("many", "one"), [("are", "is"), ("were", "was"), ("have", "has"), ("count", "counts")], ids=["be", "was", "have", "other"]
)
def test_a_verb_agrees_with_its_number(many: str, one: str) -> None:
    assert [agreeing(number, many) for number in (0, 1, 2)] == [many, one, many]


def test_no_message_says_a_number_before_many_without_asking_whether_it_is_one() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for line in _unasked(ast.parse(path.read_text()))
    ]

    assert found == []


def _unasked(node: ast.AST, *, is_asked: bool = False) -> Iterator[int]:
    """Lines of texts with a number and a noun for many of them, in functions that tell nowhere whether something is 1."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        is_asked = any(_asks_for_one(inner) for inner in ast.walk(node))
    if isinstance(node, ast.JoinedStr) and not is_asked:
        pairs = zip(node.values, node.values[1:], strict=False)
        yield from (node.lineno for value, text in pairs if _is_number(value) and _begins_with_many(text))
    for child in ast.iter_child_nodes(node):
        yield from _unasked(child, is_asked=is_asked)


def _asks_for_one(node: ast.AST) -> bool:
    return isinstance(node, ast.Compare) and any(
        isinstance(side, ast.Constant) and side.value == 1 for side in node.comparators
    )


def _is_number(node: ast.expr) -> bool:
    # A limit has its reason, and is more than one.
    return isinstance(node, ast.FormattedValue) and not ast.unparse(node.value).rpartition(".")[2].lstrip("_").isupper()


def _begins_with_many(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and MANY.match(node.value) is not None


def test_a_submission_of_one_says_one(tmp_path: Path) -> None:
    project = Project(tmp_path / "user", {"type": "local"})
    project.benchmark("math", tasks=1)

    said = project.submit()
    cancelled = project.gym("cancel").stdout

    assert "math: 1 rollout in 1 shard: 1 submitted" in said
    assert "1 jobs" not in cancelled

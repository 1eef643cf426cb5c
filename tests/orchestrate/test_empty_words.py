"""An argument that says nothing, as a variable of a shell that is not set leaves it: refused by every command, for every flag."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from orchestrate.cli.main import EVAL, main
from orchestrate.cli.parser import CommandParser
from tests.merge.legacy_files import row, write
from tests.orchestrate.project import tree


class _FoundError(Exception):
    """Ends a command as soon as its parser is there, which it carries."""

    def __init__(self, parser: CommandParser) -> None:
        super().__init__(parser)
        self.parser = parser


def parser_of(command: str) -> CommandParser:
    """The parser of the command as it is."""

    def found(self: CommandParser, args: Any = None, namespace: Any = None) -> NoReturn:
        del args, namespace
        raise _FoundError(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CommandParser, "parse_known_args", found)
        with pytest.raises(_FoundError) as info:
            main(["eval", command])
    return info.value.parser


def words_of(command: str) -> Iterator[list[str]]:
    """For each argument of the command the ways to give it empty."""
    actions: list[argparse.Action] = parser_of(command)._actions  # pyright: ignore[reportPrivateUsage] - argparse lists them nowhere else
    yield [""]
    for action in actions:
        for flag in action.option_strings if action.nargs != 0 else ():
            yield [flag, ""]
            yield [f"{flag}="]


CASES = [(command, words) for command in EVAL for words in words_of(command)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, which is a run's, so that a command that takes nothing for it would find something to do."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    root = tmp_path / "here"
    root.mkdir()
    write(root / "rollouts.jsonl", [row(0), row(1)])
    (root / "plan.json").write_text("{}")
    (root / "resolved-config.yaml").write_text("{}")
    monkeypatch.chdir(root)
    return root


@pytest.mark.parametrize(("command", "words"), CASES, ids=[" ".join([command, *words]) for command, words in CASES])
def test_an_empty_argument_is_refused_in_a_line(
    folder: Path, capfd: pytest.CaptureFixture[str], command: str, words: list[str]
) -> None:
    """``gym eval cancel --benchmark "$UNSET"`` cancelled every benchmark, and ``clean "$UNSET"`` was about where one stood."""
    before = tree(folder)

    with pytest.raises(SystemExit) as end:
        main(["eval", command, *words])

    out, err = capfd.readouterr()
    assert (end.value.code, out) == (2, "")
    assert err.startswith(f"gym eval {command}: the argument ")
    assert "is empty, as a variable of a shell that is not set leaves it" in err
    assert err.count("\n") == 1
    assert tree(folder) == before


def test_there_is_a_case_for_each_command_and_its_flags() -> None:
    found = {(command, words[0]) for command, words in CASES}
    assert {command for command, _ in found} == set(EVAL)
    assert {("cancel", "--benchmark"), ("run", "-o"), ("report", "-o"), ("init", "--input")} <= found


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["status", ""], "in place 1"),
        (["why", "x", ""], "in place 2"),
        (["cancel", "x", "--benchmark", ""], "behind --benchmark"),
        (["run", "-o="], "of -o"),
        (["run", "--output="], "of --output"),
    ],
)
def test_the_place_of_an_empty_argument_is_told(capfd: pytest.CaptureFixture[str], words: list[str], place: str) -> None:
    with pytest.raises(SystemExit):
        main(["eval", *words])

    assert f"the argument {place} is empty" in capfd.readouterr().err


def test_a_text_of_nothing_is_told_from_nothing(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """An override with nothing behind its = is Hydra's empty text, and its key says whether it takes one."""
    code = main(["eval", "run", "-i", "rollouts.jsonl", "-o", "o.jsonl", "+policy_model_name="])

    assert code == 2
    assert "the argument" not in capfd.readouterr().err

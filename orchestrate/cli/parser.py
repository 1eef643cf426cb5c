"""argparse with errors in one line and a guess for a misspelt flag."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Mapping
from typing import Any, Final, NoReturn

#: argparse's prefix of an error about one argument, ``argument -i/--input: ...``, and its words for a wrong type.
_ABOUT: Final = re.compile(r"argument (?P<names>\S+): (?P<what>.*)", re.DOTALL)
_TYPE: Final = re.compile(r"invalid (?P<type>\w+) value: (?P<value>.*)", re.DOTALL)
_IN_WORDS: Final = {"int": "a whole number", "float": "a number"}


class CommandParser(argparse.ArgumentParser):
    """Flags are never abbreviated: what a script relies on must not change its meaning when a flag is added.

    ``elsewhere`` maps flags that people know from another command to what says the same here.
    """

    def __init__(
        self, prog: str, description: str, epilog: str | None = None, *, elsewhere: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(prog=prog, description=description, epilog=epilog, allow_abbrev=False)
        self._elsewhere = elsewhere or {}

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - overloads
        """The same as argparse's, but that a word which is no UTF-8 is refused: no file and no output takes it."""
        for word in sys.argv[1:] if args is None else args:
            if not word.isascii() and any("\ud800" <= sign <= "\udfff" for sign in word):
                self.error(f"{word!a} is no UTF-8")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """End with exit code 2 and one line."""
        sys.stderr.write(f"{self.prog}: {_plain(message)}. {self._hint(message)}\n")
        sys.exit(2)

    def _hint(self, message: str) -> str:
        _, _, words = message.partition("unrecognized arguments: ")
        # A flag that is known and was given a wrong value is no misspelling.
        unknown = next((word.partition("=")[0] for word in words.split() if word.startswith("-")), None)
        if unknown is not None and unknown in self._elsewhere:
            return self._elsewhere[unknown]
        known = [flag for action in self._actions for flag in action.option_strings]
        near = difflib.get_close_matches(unknown, known, n=1) if unknown is not None else []
        return f"Did you mean {near[0]}?" if near else f"See {self.prog} --help."


def count(text: str) -> int:
    """The type of a flag that takes a whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def _plain(message: str) -> str:
    """What argparse says of an argument, in plain words; its other messages as they are. Without a full stop."""
    about = _ABOUT.fullmatch(message)
    if about is None:
        return message.rstrip(".")
    what = about["what"].rstrip(".")
    wrong = _TYPE.fullmatch(what)
    if wrong is not None:
        what = f"{wrong['value']} is not {_IN_WORDS.get(wrong['type'], 'usable')}"
    return f"{about['names']}: {what}"

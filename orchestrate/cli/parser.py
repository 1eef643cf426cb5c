"""argparse with errors in one line and a guess for a misspelt flag."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

#: argparse's prefix of an error about one argument, ``argument -i/--input: ...``, and its words for a wrong type.
_ABOUT: Final = re.compile(r"argument (?P<names>\S+): (?P<what>.*)", re.DOTALL)
_TYPE: Final = re.compile(r"invalid (?P<type>\w+) value: (?P<value>.*)", re.DOTALL)
#: A flag with an = and nothing behind it.
_FLAG_ALONE: Final = re.compile(r"(--?[^=\s]+)=")
#: What ``--verifier`` can be, for help that must not load what it names.
VERIFIER_WORDS: Final = "exact_match, number, multiple_choice, regex, math, judge, python:module:function"
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
        """The same as argparse's, but that a word is refused which is no UTF-8, or empty.

        No file and no output takes the one. The other would be, as a path, the current directory, and as a name every name.
        """
        words = sys.argv[1:] if args is None else list(args)
        for word in words:
            if not word.isascii() and any("\ud800" <= sign <= "\udfff" for sign in word):
                self.error(f"{word!a} is no UTF-8")
        if (place := _empty_place(words)) is not None:
            self.error(f"the argument {place} is empty, as a variable of a shell that is not set leaves it")
        return super().parse_known_args(words, namespace)

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


def with_flag(problem: str, keys: Mapping[str, str]) -> str:
    """``problem``, which begins with a setting's name, and the flag that sets it; ``keys`` are the settings by their flags."""
    flags = {key: flag for flag, key in keys.items()}
    key = problem.partition(":")[0]
    return f"{problem} (--{flags[key].replace('_', '-')})" if key in flags else problem


def _empty_place(words: Sequence[str]) -> str | None:
    """Where the first word stands that says nothing, alone or behind the = of a flag; None when all say something."""
    for number, word in enumerate(words, 1):
        if (flag := _FLAG_ALONE.fullmatch(word)) is not None:
            return f"of {flag[1]}"
        if not word:
            before = words[number - 2] if number > 1 else ""
            # Any other word may be a text that is nobody's business.
            return f"behind {before}" if before.startswith("-") else f"in place {number}"
    return None


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

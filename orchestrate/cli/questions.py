"""What flags leave open: asked for on a terminal, and nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable

from orchestrate.cli.parser import CommandParser


def answer(
    parser: CommandParser,
    question: str,
    flag: str,
    given: object,
    *,
    default: str | None = None,
    check: Callable[[str], None] | None = None,
) -> str:
    """What the flag says, checked, or the answer to the question."""
    if given is None:
        return ask(parser, question, flag, default=default, check=check)
    if check is not None:
        check(str(given))
    return str(given)


def ask(
    parser: CommandParser,
    question: str,
    flag: str,
    *,
    default: str | None = None,
    check: Callable[[str], None] | None = None,
) -> str:
    """The answer to a question, asked until it is a good one, on a terminal; elsewhere the default, or the missing flag."""
    from collector.errors import GymEvalError

    if not sys.stdin.isatty():
        if default is None:
            parser.error(f"{flag} is missing")
        return default
    shown = f" [{default}]" if default else ""
    while True:
        answer = input(f"{question}{shown}: ").strip() or default
        if answer is None:
            continue
        try:
            if check is not None:
                check(answer)
        except GymEvalError as error:
            print(error)
        else:
            return answer

"""A number with its noun and its verb, as people say them."""

from __future__ import annotations

from typing import Final

_OF_ONE: Final = {"are": "is", "were": "was", "have": "has", "do": "does"}


def counted(number: int, noun: str, *, of: int | None = None) -> str:
    """``1 session``, ``1,000 sessions``; with ``of``, which the noun then agrees with, ``1 of 3 sessions``."""
    share = "" if of is None else f"{number:,} of "
    whole = number if of is None else of
    return f"{share}{whole:,} {noun}{'' if whole == 1 else 's'}"


def agreeing(number: int, verb: str) -> str:
    """``verb``, given as it is said of many, as it is said of ``number``: ``are`` or ``is``, ``hold`` or ``holds``."""
    return verb if number != 1 else _OF_ONE.get(verb, f"{verb}s")

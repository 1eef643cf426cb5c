"""A number with its noun, as people say it."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """``1 session``, ``1,000 sessions``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

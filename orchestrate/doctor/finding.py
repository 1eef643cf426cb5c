"""One line of the doctor: what was looked at, how it is, and what to do."""

from __future__ import annotations

from enum import StrEnum

from collector.settings import StrictModel


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    #: A run works, and something of it is slower, lost to sight or up to you.
    WARN = "warn"
    #: A run would not work.
    FAIL = "fail"


class Finding(StrictModel):
    """One fact. ``advice`` is empty where nothing is to be done."""

    level: Level
    subject: str
    text: str
    advice: str = ""


def ok(subject: str, text: str) -> Finding:
    """Nothing to do."""
    return Finding(level=Level.OK, subject=subject, text=text)


def warn(subject: str, text: str, advice: str) -> Finding:
    """A run works, with a drawback."""
    return Finding(level=Level.WARN, subject=subject, text=text, advice=advice)


def fail(subject: str, text: str, advice: str) -> Finding:
    """A run would not work."""
    return Finding(level=Level.FAIL, subject=subject, text=text, advice=advice)

"""Durations and moments as people type them: ``90s``, ``30m``, ``12h``, ``7d``, or a date."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from collector.errors import RequestError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_FORM = re.compile(r"(\d{1,12})([smhdw])", re.ASCII)


def parse_duration_s(text: str, *, flag: str) -> float:
    """The seconds that ``text`` means. Raises RequestError that names ``flag``."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise RequestError(f"{text!r} is not a duration.", "Write 90s, 30m, 12h, 7d or 2w.", flag)
    return float(int(found[1]) * _UNITS[found[2]])


def parse_since(text: str, *, flag: str) -> datetime:
    """The moment that ``text`` means: that long ago, or a date or time in ISO 8601 (UTC unless it says otherwise)."""
    if _FORM.fullmatch(text):
        try:
            return datetime.now(UTC) - timedelta(seconds=parse_duration_s(text, flag=flag))
        except OverflowError:
            # Longer ago than years are counted: everything is since then.
            return datetime.min.replace(tzinfo=UTC)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise RequestError(f"{text!r} is no moment.", "Write 7d, 12h or 2026-05-01.", flag) from error
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)

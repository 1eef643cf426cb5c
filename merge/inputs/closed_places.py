"""Directories that a pattern leads into and that this user may not look into: what is in them is silently no match."""

from __future__ import annotations

import glob
import logging
import os
from functools import cache
from pathlib import Path

_log = logging.getLogger(__name__)


@cache
def note_closed(pattern: str, signs: frozenset[str]) -> None:
    """Warn once of each directory that ``pattern`` could not look into. ``signs`` are those that make a word a pattern."""
    for directory in _closed(Path(pattern), signs):
        _log.warning("passed over, since its owner forbids a look into it: %s", directory)


def _closed(pattern: Path, signs: frozenset[str]) -> list[str]:
    found: list[str] = []
    for parent, below in zip(pattern.parents, pattern.parts[::-1], strict=False):
        if signs.isdisjoint(str(parent)) and signs.isdisjoint(below):
            # Above the first sign there is one place, and that it is closed is an error of its own.
            break
        # To find a name that is given it is enough to pass through.
        is_passed_through = signs.isdisjoint(below) and parent.name != "**"
        needed = os.X_OK if is_passed_through else os.R_OK | os.X_OK
        places = glob.glob(str(parent), recursive=True)  # noqa: PTH207 - patterns may be absolute
        found += [place for place in sorted(places) if os.path.isdir(place) and not os.access(place, needed)]  # noqa: PTH112
    return found

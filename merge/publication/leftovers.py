"""What crashed publications left beside their targets."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from collector import durable


def sweep_leftovers(paths: Iterable[Path]) -> None:
    """Remove what crashed publications of ``paths`` left. The caller holds the lock under which they are published."""
    for path in paths:
        durable.sweep(path)

"""When a job is told that its time is nearly over. A module of its own, by which a submission and its jobs agree."""

from __future__ import annotations

from typing import Final

#: Seconds before the time limit at which the collector is told; a quarter of a short limit, so that some work is done.
WARNING_S: Final = 90


def warning_seconds(walltime_s: int) -> int:
    """How long before its time limit a job is told to finish."""
    return min(WARNING_S, walltime_s // 4)

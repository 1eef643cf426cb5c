"""What the automatic check of a result's health found, told on standard error; it changes nothing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collector.artifacts import RunArtifacts
    from merge.health.run import HealthChoice


def print_health_note(artifacts: RunArtifacts, choice: HealthChoice | None) -> None:
    """Check rows that were not checked since they were written, and print what is to be told; nothing without ``choice``."""
    if choice is None:
        return
    from merge.health.run import note_when_new

    note = note_when_new(artifacts, choice, since=artifacts.rollouts)
    if note is not None:
        print(note, file=sys.stderr)

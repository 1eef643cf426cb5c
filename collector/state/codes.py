"""What is known of one rollout: its state in one byte, its attempts, and where its row stands. Pure values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from collector.outcomes import RolloutState


class Code(IntEnum):
    """A rollout's latest attempt in one byte."""

    NEVER = 0
    UNKNOWN = 1
    MEASURED = 2
    MASKED = 3
    UNSCORED = 4
    OMITTED = 5
    FAILED = 6
    FAILED_TERMINALLY = 7
    #: Planned anew in another shard: no longer this one's, whatever its journal says.
    MOVED = 8


#: The state that a code stands for.
STATES = {
    Code.NEVER: RolloutState.NEVER_DISPATCHED,
    Code.UNKNOWN: RolloutState.UNKNOWN,
    Code.MEASURED: RolloutState.MEASURED,
    Code.MASKED: RolloutState.MASKED,
    Code.UNSCORED: RolloutState.UNSCORED,
    Code.OMITTED: RolloutState.OMITTED,
    Code.FAILED: RolloutState.FAILED,
    Code.FAILED_TERMINALLY: RolloutState.FAILED,
    # Nothing is to be done about it here; reports never count it.
    Code.MOVED: RolloutState.OMITTED,
}

#: Codes of rollouts that need nothing more, with their state.
CLOSED_CODES = {code: STATES[code] for code in (Code.MEASURED, Code.MASKED, Code.UNSCORED, Code.OMITTED)}
#: Codes of rollouts whose latest attempt has a row in the file of results.
RESULT_CODES = frozenset({Code.MEASURED, Code.MASKED, Code.UNSCORED})
#: Codes of rollouts that may need another attempt.
OPEN_CODES = frozenset({Code.NEVER, Code.UNKNOWN, Code.FAILED, Code.FAILED_TERMINALLY})


@dataclass(frozen=True, slots=True)
class Past:
    """What the journal knows of one rollout. ``dispatched`` attempts, of which ``recorded`` have an outcome."""

    state: RolloutState
    dispatched: int
    recorded: int
    terminal: bool
    #: The routing class of the latest failure; None when the latest attempt did not fail.
    failure_class: str | None = None

    @property
    def interrupted(self) -> int:
        """Attempts that left and never came back."""
        return self.dispatched - self.recorded


class Place(NamedTuple):
    """The bytes of one row in its file."""

    offset: int
    length: int
    checksum: int

"""What the state machine of a shard knows beside the shard, and how it makes records and drains."""

from __future__ import annotations

from dataclasses import dataclass, field

from collector import jsonl
from collector.formats.record import Attempt, Record, record
from collector.outcomes import Answer, Completed, Failure, FailureClass, Verdict
from collector.session import ShardSession
from collector.stop import StopReason, StopRequest

#: What may be recorded of an attempt, and the state it gives; ``flagged`` is a result of an invalid judge.
STATES = {"measured": "measured", "flagged": "measured", "failed": "failed", "terminal": "failed", "migrated": "failed"}
FINAL = {"measured", "flagged", "terminal"}


@dataclass
class Known:
    """What was acknowledged of one rollout."""

    dispatched: int = 0
    #: (attempt, kind), in order.
    outcomes: list[tuple[int, str]] = field(default_factory=list)

    @property
    def latest(self) -> str:
        """The kind of the latest attempt; ``open`` when it has no outcome."""
        if not self.dispatched:
            return "never"
        return self.outcomes[-1][1] if self.outcomes and self.outcomes[-1][0] == self.dispatched - 1 else "open"


class StopAfter:
    """Asks for a drain when so many outcomes were recorded."""

    def __init__(self, stop: StopRequest, outcomes: int) -> None:
        self.stop, self.left = stop, outcomes

    def started(self, session: ShardSession) -> None:
        self.changed(0)

    def changed(self, outcomes: int = 1) -> None:
        self.left -= outcomes
        if self.left <= 0 and not self.stop.is_asked:
            self.stop.ask(StopReason.TIME_LIMIT)


def record_of(session: ShardSession, index: int, number: int, kind: str) -> Record:
    source = session.store.inventory.line(index)
    attempt = Attempt(
        index=index, number=number, rollout_id=f"{index}-0", run_id=session.run_id, session=session.number,
        source=source, row=jsonl.loads(source),
    )  # fmt: skip
    if kind in {"measured", "flagged"}:
        extra = {"invalid_judge_response": True} if kind == "flagged" else {}
        return record(attempt, Completed(answer=Answer(response={}, text=""), verdict=Verdict(reward=1.0, extra=extra)), 0.1)
    failure = Failure(failure_class=FailureClass.AGENT_RUN_ERROR, reason="scripted", terminal=kind == "terminal")
    return record(attempt, failure, 0.1)

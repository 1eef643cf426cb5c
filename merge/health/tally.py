"""Counts over rows that need no row any more: each slice adds up its own, and sums of slices are sums of the run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from merge.health.evidence import Call, Evidence
from merge.health.rules import ends_on_failure


@dataclass(slots=True)
class Tally:
    """Counts over some rows."""

    #: Findings by check.
    issues: Counter[str] = field(default_factory=Counter[str])
    #: Rows by the bit set of the checks that could not be evaluated.
    blind: Counter[int] = field(default_factory=Counter[int])
    #: Rows with captured calls.
    captures: int = 0
    failed_calls: int = 0
    failed_by_status: Counter[str] = field(default_factory=Counter[str])
    #: Rows with a failed call, and those whose last call to some model failed.
    rows_with_failures: int = 0
    ended_on_error: int = 0
    replayed_calls: int = 0
    rows_with_replays: int = 0
    #: Tokens by the responses' usage, and by the captured calls.
    prompt: int = 0
    completion: int = 0
    capture_prompt: int = 0
    capture_completion: int = 0

    def add(self, other: Tally) -> None:
        """Count the rows of ``other``, too."""
        self.issues.update(other.issues)
        self.blind.update(other.blind)
        self.captures += other.captures
        self.failed_calls += other.failed_calls
        self.failed_by_status.update(other.failed_by_status)
        self.rows_with_failures += other.rows_with_failures
        self.ended_on_error += other.ended_on_error
        self.replayed_calls += other.replayed_calls
        self.rows_with_replays += other.rows_with_replays
        self.prompt += other.prompt
        self.completion += other.completion
        self.capture_prompt += other.capture_prompt
        self.capture_completion += other.capture_completion

    def count_usage(self, usage: tuple[int | None, int | None]) -> None:
        """Count the tokens (prompt, completion) of a response."""
        prompt, completion = usage
        self.prompt += prompt or 0
        self.completion += completion or 0

    def count_calls(self, evidence: Evidence) -> None:
        """Count the captured calls of one row with a trajectory."""
        calls = evidence.captured or ()
        failed = [call for call in calls if call.is_failed]
        identities = Counter(call.identity for call in calls if call.identity is not None)
        replayed = sum(count - 1 for count in identities.values())
        self.captures += bool(calls)
        self.failed_calls += len(failed)
        self.failed_by_status.update(map(_status, failed))
        self.rows_with_failures += bool(failed)
        self.ended_on_error += ends_on_failure(calls)
        self.replayed_calls += replayed
        self.rows_with_replays += bool(replayed)
        self.capture_prompt += sum(call.tokens_in or 0 for call in calls)
        self.capture_completion += sum(call.tokens_out or 0 for call in calls)


def _status(call: Call) -> str:
    return "unknown" if call.status_code is None else str(call.status_code)

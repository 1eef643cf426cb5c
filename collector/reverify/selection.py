"""Which saved answers are graded again, and which rollouts are left out and why. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from collector.reverify.answers import Candidate, Kind
from collector.settings import RetrySettings
from collector.state.retry import has_budget, is_terminal

#: Rollouts named for each reason; more would hide the others.
_MOST_NAMED: Final = 20


class Mode(StrEnum):
    """What is graded again."""

    #: Every saved answer.
    ALL = "all"
    #: Answers whose judge failed; results are taken over as they are.
    JUDGE_FAILED_ONLY = "judge_failed_only"


@dataclass(slots=True)
class Chooser:
    """Goes over the rollouts of a source once, and keeps count."""

    mode: Mode
    retry: RetrySettings
    limit: int | None = None
    #: Answers that are graded again.
    chosen: int = 0
    #: Results that are taken over.
    copied: int = 0
    #: Reason to the rollouts left out for it, as many as are named, and how many there are.
    left_out: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    counts: dict[str, int] = field(default_factory=dict[str, int])
    #: Why a rollout is left out, by key.
    reasons: dict[int, str] = field(default_factory=dict[int, str])

    def choose(self, candidates: Iterable[Candidate]) -> Iterator[Candidate]:
        """``candidates`` as they are used: those left out have kind ``ABSENT``, whatever is saved of them."""
        for one in candidates:
            if self.mode is Mode.ALL and self.limit is not None and self.chosen >= self.limit:
                return
            reason = self._reason(one)
            if reason is None:
                yield one
                continue
            self._leave_out(one, reason)
            yield replace(one, kind=Kind.ABSENT, trouble=reason)

    def warnings(self) -> list[str]:
        """A line for each reason to leave rollouts out, with their names."""
        lines: list[str] = []
        for reason, names in self.left_out.items():
            more = f" and {self.counts[reason] - len(names)} more" if self.counts[reason] > len(names) else ""
            lines.append(f"not graded again, {reason}: {', '.join(names)}{more}")
        return lines

    def _reason(self, one: Candidate) -> str | None:
        if one.kind is Kind.ABSENT:
            return one.trouble
        if self.mode is Mode.JUDGE_FAILED_ONLY:
            if one.kind is Kind.RESULT:
                self.copied += 1
                return None
            if (reason := why_not_again(one, self.retry)) is not None:
                return reason
        if self.limit is not None and self.chosen >= self.limit:
            return f"beyond the first {self.limit} (limit)"
        self.chosen += 1
        return None

    def _leave_out(self, one: Candidate, reason: str) -> None:
        self.reasons[one.key] = reason
        self.counts[reason] = self.counts.get(reason, 0) + 1
        names = self.left_out.setdefault(reason, [])
        if len(names) < _MOST_NAMED:
            names.append(one.rollout_id)


def why_not_again(one: Candidate, retry: RetrySettings) -> str | None:
    """Why the latest state of a rollout whose judge failed allows no further attempt; None when it does."""
    past = one.past
    if past is None:
        return None
    if is_terminal(past, retry):
        return f"its latest failure is terminal ({past.failure_class})"
    if not has_budget(past, retry):
        return f"its attempts are used up ({past.dispatched} dispatched): raise retry.max_attempts"
    return None

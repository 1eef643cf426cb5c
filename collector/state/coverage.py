"""What a score rests on: the counts of the eight states, which always add up to ``expected``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Self, TypeVar

import orjson
from pydantic import Field, model_validator

from collector.formats.inventory import Inventory
from collector.formats.manifest import Manifest
from collector.outcomes import RolloutState
from collector.settings import RetrySettings, StrictModel
from collector.state.codes import CLOSED_CODES, OPEN_CODES, Code, Past
from collector.state.history import History
from collector.state.retry import COMPLETED, is_exhausted_by_interruption, is_suspect, is_terminal, may_dispatch, state_under
from collector.state.scores import exact_sum

K = TypeVar("K")

FORMAT: Final = 1
#: Codes of rollouts that left once and may leave again.
_TRIED: Final = OPEN_CODES - {Code.NEVER}
#: Suspects named in a report; more would hide them.
MOST_SUSPECTS: Final = 20


class Coverage(StrictModel):
    """The file ``<stem>_coverage.json``. Counts are rollouts unless their name says attempts."""

    schema_version: Literal[1] = FORMAT
    #: True: some shards or rollouts are not in it, on purpose and by request.
    partial: bool = False
    benchmark: str
    run_id: str
    expected: int = Field(ge=0)
    #: False: nobody says how many there should be, and ``expected`` is the number of those that left a trace. Only a merge
    #: finds rows like that; the file that it writes says so, and has null for ``expected``.
    coverage_known: bool = Field(default=True, exclude=True)
    states: dict[RolloutState, int]
    attempts: int = 0
    #: Failed with a terminal failure; part of ``failed``.
    failed_terminally: int = 0
    #: Out of budget because of interruptions; part of ``exhausted``.
    exhausted_by_interruption: int = 0
    #: Rollouts in flight each time their collector died, none of them with an outcome: suspected of killing it.
    suspects: list[str] = Field(default_factory=list)
    #: Completed answers that stopped at a token limit.
    truncated: int = 0
    #: Rollouts that may still be dispatched.
    unfinished: int = 0
    #: Latest failures of ``failed`` and ``exhausted`` rollouts, by kind.
    failures_by_kind: dict[str, int] = Field(default_factory=dict)
    #: Sum, smallest and largest of the measured rewards; null when nothing was measured, and a sum beyond all floats, too.
    reward_sum: float | None = None
    reward_min: float | None = None
    reward_max: float | None = None
    identity_verified: bool = True

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if sum(self.states.values()) != self.expected:
            raise ValueError(f"the states add up to {sum(self.states.values())}, not to {self.expected}")
        return self

    @property
    def measured(self) -> int:
        """Rollouts with a score."""
        return self.states.get(RolloutState.MEASURED, 0)

    @property
    def completed(self) -> int:
        """Rollouts that need nothing more: measured, masked, unscored or omitted."""
        return sum(n for state, n in self.states.items() if state in COMPLETED)

    @property
    def complete(self) -> bool:
        """Whether every expected rollout completed; False when nobody knows which were expected."""
        return self.coverage_known and self.completed == self.expected

    @property
    def is_final(self) -> bool:
        """Whether nothing may be dispatched any more, complete or not."""
        return self.unfinished == 0

    @property
    def mean(self) -> float | None:
        """Mean of the measured rewards; None when nothing was measured. Never read it without ``measured`` of ``expected``."""
        return self.reward_sum / self.measured if self.reward_sum is not None and self.measured else None

    @property
    def bounds(self) -> tuple[float, float] | None:
        """What the mean would be if every unmeasured rollout had reward 0, and 1; None unless all rewards lie in [0, 1]."""
        if not self.coverage_known or not self.expected:
            return None
        if self.reward_sum is None or self.reward_min is None or self.reward_max is None:
            return None
        if self.reward_min < 0 or self.reward_max > 1:
            return None
        missing = self.expected - self.measured
        return self.reward_sum / self.expected, (self.reward_sum + missing) / self.expected

    def with_unknown(self, count: int) -> Coverage:
        """The same with ``count`` more rollouts of which nothing can be told: expected, unfinished and in state ``unknown``."""
        states = {**self.states, RolloutState.UNKNOWN: self.states.get(RolloutState.UNKNOWN, 0) + count}
        update = {"expected": self.expected + count, "unfinished": self.unfinished + count, "states": states}
        return self.model_copy(update=update)

    def encode(self) -> bytes:
        """The file's bytes: indented JSON with the derived figures beside the counts, and a final newline."""
        derived = {
            "measured": self.measured,
            "completed": self.completed,
            "complete": self.complete,
            "final": self.is_final,
            "mean_reward": self.mean,
            "mean_reward_bounds": self.bounds,
        }
        return orjson.dumps({**self.model_dump(mode="json"), **derived}, option=orjson.OPT_INDENT_2) + b"\n"


def count(history: History, manifest: Manifest, inventory: Inventory, retry: RetrySettings) -> Coverage:
    """The coverage of one shard. Looks at each rollout that was tried and may be open, and only counts the others."""
    states = {state: history.codes.count(code) for code, state in CLOSED_CODES.items()}
    tally = _Tally(Counter(states))
    if never := history.codes.count(Code.NEVER):
        # Nothing is known of any of them, so what is decided for one is decided for all.
        first = history.codes.index(Code.NEVER)
        tally.add(first, history.past(first), retry, alike=never)
    for index, code in enumerate(history.codes):
        if code in _TRIED:
            tally.add(index, history.past(index), retry)
    scores = history.scores()
    return Coverage(
        benchmark=manifest.benchmark,
        run_id=manifest.run_id,
        expected=history.owned,
        states={state: tally.states[state] for state in RolloutState},
        attempts=sum(history.latest) + len(history.latest),
        failed_terminally=tally.terminal,
        exhausted_by_interruption=tally.by_interruption,
        suspects=[inventory.rollout_id(index) for index in tally.suspects[:MOST_SUSPECTS]],
        truncated=len(history.truncated),
        unfinished=tally.unfinished,
        failures_by_kind=dict(sorted(Counter(history.kinds.values()).items())),
        reward_sum=scores.total,
        reward_min=scores.low,
        reward_max=scores.high,
        identity_verified=not (manifest.legacy_import or manifest.identity_overridden),
    )


@dataclass(slots=True)
class _Tally:
    states: Counter[RolloutState]
    terminal: int = 0
    by_interruption: int = 0
    unfinished: int = 0
    suspects: list[int] = field(default_factory=list[int])

    def add(self, index: int, past: Past, retry: RetrySettings, *, alike: int = 1) -> None:
        """Count rollout ``index``, and as many with the same past as make ``alike`` of them; none of these is suspect."""
        state = state_under(past, retry)
        self.states[state] += alike
        self.terminal += alike * (state is RolloutState.FAILED and is_terminal(past, retry))
        self.by_interruption += alike * is_exhausted_by_interruption(past, retry)
        self.unfinished += alike * may_dispatch(past, retry)
        if is_suspect(past):
            self.suspects.append(index)


def total(parts: Iterable[Coverage], *, expected: int = 0) -> Coverage:
    """The sum over shards of one benchmark. ``parts`` is not empty.

    Of ``expected`` rollouts those that are in no part are unknown: a score must not look better without them.
    """
    found = _sum_of(list(parts))
    missing = expected - found.expected
    return found.with_unknown(missing) if missing > 0 else found


def _sum_of(shards: Sequence[Coverage]) -> Coverage:
    states = _summed(part.states for part in shards)
    sums = [part.reward_sum for part in shards if part.reward_sum is not None]
    # A part can have scores and no sum: then nobody knows the whole.
    is_known = bool(sums) and len(sums) == sum(part.measured > 0 for part in shards)
    return Coverage(
        benchmark=shards[0].benchmark,
        run_id=shards[0].run_id,
        partial=any(part.partial for part in shards),
        expected=sum(part.expected for part in shards),
        states={state: states[state] for state in RolloutState},
        attempts=sum(part.attempts for part in shards),
        failed_terminally=sum(part.failed_terminally for part in shards),
        exhausted_by_interruption=sum(part.exhausted_by_interruption for part in shards),
        suspects=[name for part in shards for name in part.suspects][:MOST_SUSPECTS],
        truncated=sum(part.truncated for part in shards),
        unfinished=sum(part.unfinished for part in shards),
        failures_by_kind=dict(sorted(_summed(part.failures_by_kind for part in shards).items())),
        reward_sum=exact_sum(sums) if is_known else None,
        reward_min=min((part.reward_min for part in shards if part.reward_min is not None), default=None),
        reward_max=max((part.reward_max for part in shards if part.reward_max is not None), default=None),
        identity_verified=all(part.identity_verified for part in shards),
    )


def _summed(parts: Iterable[Mapping[K, int]]) -> Counter[K]:
    found: Counter[K] = Counter()
    for part in parts:
        for key, number in part.items():
            found[key] += number
    return found

"""Zeros on request: which rollouts without a score a report counts as 0. Pure; artifacts and identity never change.

A failure is counted when its latest attempt failed with a listed class. A rollout is missing when its latest attempt has no
outcome or there was none; a recorded failure, an unscored, masked or omitted completion is never an imputed zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from merge.inputs.shards import ShardView
from merge.metrics.fields import REWARD, Metrics, present
from merge.metrics.figures import mean_of
from merge.metrics.table import RowTable


@dataclass(frozen=True, slots=True)
class Counting:
    """What a person asked for."""

    failure_classes: tuple[str, ...] = ()
    missing: bool = False

    @property
    def is_on(self) -> bool:
        return bool(self.failure_classes) or self.missing


OFF: Final = Counting()


@dataclass(frozen=True, slots=True)
class Zeros:
    """Keys of rollouts that count as 0, failures and missing ones apart, each rising."""

    failures: tuple[int, ...] = ()
    imputed: tuple[int, ...] = ()

    @property
    def keys(self) -> list[int]:
        return sorted((*self.failures, *self.imputed))

    def applied(self, table: RowTable) -> RowTable:
        """``table`` with a reward of 0 for each of them."""
        return table.with_zeros(REWARD, self.keys) if self.failures or self.imputed else table

    def metrics(self, measured: RowTable) -> Metrics:
        """The two counts, and the mean of what was measured, apart from them; nothing when there are none."""
        if not self.failures and not self.imputed:
            return {}
        rewards = present(measured.column(REWARD))
        return {
            "coverage/imputed": len(self.imputed),
            "coverage/failures_counted_as_zero": len(self.failures),
            f"mean_measured/{REWARD}": mean_of(rewards) if rewards else None,
        }


def zeros_of(shards: Iterable[ShardView], counting: Counting) -> Zeros:
    """Which rollouts of ``shards`` count as 0. Those of missing shards are in no inventory, and never do."""
    failures: list[int] = []
    imputed: list[int] = []
    for shard in shards:
        failures += [key for key, name in shard.failures.items() if name in counting.failure_classes]
        if counting.missing:
            imputed += shard.missing
    return Zeros(tuple(sorted(failures)), tuple(sorted(imputed)))


def coverage_fields(counting: Counting, zeros: Sequence[Zeros], reward_sum: float | None, measured: int) -> dict[str, Any]:
    """What the coverage file says of it: the request, both counts, and the mean with and without them."""
    failures, imputed = sum(len(z.failures) for z in zeros), sum(len(z.imputed) for z in zeros)
    count = measured + failures + imputed
    return {
        "count_failure_classes_as_zero": list(counting.failure_classes),
        "count_missing_rollouts_as_zero": counting.missing,
        "measured": measured,
        "failures_counted_as_zero": failures,
        "imputed": imputed,
        "mean_reward_with_zeros": (reward_sum or 0.0) / count if count else None,
    }

"""The coverage of a whole benchmark, missing shards included, as ``<stem>_coverage.json``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import orjson

from collector.state.coverage import Coverage, total
from collector.state.scores import Scores
from merge.inputs.identity import Inputs
from merge.inputs.shards import ShardView

#: Fields that need a number of rollouts that were expected.
_NEED_EXPECTED = ("expected", "complete", "mean_reward_bounds")


class RewardFacts(TypedDict):
    """The fields of a coverage that rewards decide."""

    reward_sum: float | None
    reward_min: float | None
    reward_max: float | None


def reward_facts(scores: Scores) -> RewardFacts:
    """Sum, smallest and largest of rewards. The sum is rounded once, so that it is the same in any order."""
    return RewardFacts(reward_sum=scores.total, reward_min=scores.low, reward_max=scores.high)


def total_coverage(shards: Sequence[ShardView], inputs: Inputs, *, is_partial: bool) -> Coverage:
    """The sum over ``shards``; rollouts of missing shards are expected, unfinished and in state ``unknown``."""
    summed = total(shard.coverage for shard in shards).with_unknown(inputs.missing_rollouts)
    scores = Scores.together(shard.scores for shard in shards)
    return summed.model_copy(update={"partial": is_partial, **reward_facts(scores)})


def encode_coverage(
    coverage: Coverage,
    missing_shards: Sequence[int],
    *,
    parts: Sequence[tuple[str, Coverage]] = (),
    counted: dict[str, Any] | None = None,
    without_inventory: Sequence[str] = (),
) -> bytes:
    """The file's bytes; a partial one says so first and names the shards that are not in it.

    ``parts`` are the coverages that make the whole, by name; ``counted`` says which zeros a report counts on request. With an
    input ``without_inventory``, what was expected is null: nobody knows it.
    """
    fields: dict[str, Any] = orjson.loads(coverage.encode())
    is_partial = fields.pop("partial")
    first = {"partial": True} if is_partial else {}
    last: dict[str, Any] = {} if is_partial else {"partial": False}
    if without_inventory:
        fields.update(dict.fromkeys(_NEED_EXPECTED))
    last["coverage_known"] = not without_inventory
    last["missing_shards"] = missing_shards
    last["shards_without_inventory"] = without_inventory
    if counted is not None:
        last["counted_as_zero"] = counted
    last["shards"] = [_part(name, part) for name, part in parts]
    return orjson.dumps({**first, **fields, **last}, option=orjson.OPT_INDENT_2) + b"\n"


def _part(name: str, coverage: Coverage) -> dict[str, Any]:
    return {
        "name": name,
        "expected": coverage.expected,
        "measured": coverage.measured,
        "unfinished": coverage.unfinished,
        "attempts": coverage.attempts,
        "mean_reward": coverage.mean,
        "states": {state.value: count for state, count in coverage.states.items() if count},
    }

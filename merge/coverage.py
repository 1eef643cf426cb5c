"""The coverage of a whole benchmark, missing shards included, as ``<stem>_coverage.json``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

import orjson

from collector.coverage import Coverage, total
from collector.outcomes import RolloutState
from merge.identity import Inputs
from merge.shards import ShardView


def total_coverage(shards: Sequence[ShardView], inputs: Inputs, *, is_partial: bool) -> Coverage:
    """The sum over ``shards``; rollouts of missing shards are expected, unfinished and in state ``unknown``.

    The reward sum is rounded once over all rewards, so that it is the same however the rollouts were split.
    """
    summed = total(shard.coverage for shard in shards)
    rewards = list(chain.from_iterable(shard.rewards for shard in shards))
    missing = inputs.missing_rollouts
    states = {**summed.states, RolloutState.UNKNOWN: summed.states[RolloutState.UNKNOWN] + missing}
    return summed.model_copy(
        update={
            "partial": is_partial,
            "expected": summed.expected + missing,
            "states": states,
            "unfinished": summed.unfinished + missing,
            "reward_sum": math.fsum(rewards) if rewards else None,
        }
    )


def encode_coverage(coverage: Coverage, missing_shards: Sequence[int]) -> bytes:
    """The file's bytes; a partial one says so first and names the shards that are not in it."""
    fields: dict[str, Any] = orjson.loads(coverage.encode())
    is_partial = fields.pop("partial")
    first = {"partial": True} if is_partial else {}
    last = {} if is_partial else {"partial": False}
    return orjson.dumps({**first, **fields, **last, "missing_shards": missing_shards}, option=orjson.OPT_INDENT_2) + b"\n"

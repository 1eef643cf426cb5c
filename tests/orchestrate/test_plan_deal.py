"""How rollouts become shards and shards become arrays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrate.runs.plan import batches, deal


@given(st.integers(1, 300), st.integers(1, 40), st.text())
def test_every_rollout_is_in_exactly_one_shard(count: int, shards: int, seed: str) -> None:
    hands = deal(count, shards, seed=seed)

    assert sorted(position for hand in hands for position in hand) == list(range(count))
    assert len(hands) == shards


@given(st.integers(1, 300), st.integers(1, 40), st.text())
def test_shards_are_of_one_size_and_in_order(count: int, shards: int, seed: str) -> None:
    hands = deal(count, shards, seed=seed)

    assert max(map(len, hands)) - min(map(len, hands)) <= 1
    assert all(hand == sorted(hand) for hand in hands)


def test_the_same_inventory_is_dealt_the_same_way_every_time() -> None:
    # Fixed values: a deal that changed between versions would make a saved plan a lie.
    assert deal(8, 2, seed="abc") == deal(8, 2, seed="abc")
    assert deal(8, 2, seed="abc") != deal(8, 2, seed="abd")


def test_neighbours_in_the_dataset_are_spread() -> None:
    hands = deal(1000, 4, seed="x")

    assert all(90 < sum(position < 500 for position in hand) < 160 for hand in hands)


@pytest.mark.parametrize(
    ("count", "sizes"),
    [(1, [1]), (1000, [1000]), (1001, [1001]), (1002, [1001, 1]), (2002, [1001, 1001]), (3000, [1001, 1001, 998]), (0, [])],
)
def test_arrays_are_split_exactly_at_the_sites_limit(count: int, sizes: list[int]) -> None:
    parts = batches(range(count), 1001)

    assert [len(part) for part in parts] == sizes
    assert [index for part in parts for index in part] == list(range(count))

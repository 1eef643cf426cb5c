"""Rows are read into memory that held other rows: nothing of those is ever taken for what a file has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collector.errors import CorruptArtifactError
from collector.settings import RetrySettings
from merge.inputs.shards import ShardView, read_shard
from merge.rows import blocks as row_blocks
from merge.rows.blocks import RowMemory, plan_stretches, read_stretch
from tests.merge.build import answered, fill_all, plan


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[ShardView]:
    """Three shards whose rows make several stretches."""
    monkeypatch.setattr(row_blocks, "_STRETCH", 4096)
    made = plan(tmp_path / "run", shards=3, tasks=40)
    fill_all(made, lambda task, _: answered(1.0, text="x" * (7 * task)))
    return [read_shard(shard, RetrySettings()) for shard in made.shards]


def test_memory_used_again_holds_the_rows_of_each_stretch(shards: list[ShardView]) -> None:
    stretches = plan_stretches(shards)
    memory = RowMemory()

    found = [list(map(bytes, read_stretch(shards, stretch, memory).lines)) for stretch in stretches]

    assert len(stretches) > 3
    assert found == [list(map(bytes, read_stretch(shards, stretch).lines)) for stretch in stretches]


def test_a_row_that_was_cut_off_is_not_completed_by_what_memory_held(shards: list[ShardView]) -> None:
    last = plan_stretches(shards)[-1]
    memory = RowMemory()
    whole = list(map(bytes, read_stretch(shards, last, memory).lines))
    # From here on the same bytes lie where the next reading puts them.
    assert list(map(bytes, read_stretch(shards, last, memory).lines)) == whole
    os.truncate(shards[-1].artifacts.rollouts, shards[-1].artifacts.rollouts.stat().st_size - 9)

    with pytest.raises(CorruptArtifactError, match="is not the one recorded"):
        read_stretch(shards, last, memory)

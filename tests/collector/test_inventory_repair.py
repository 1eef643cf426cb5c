"""An inventory that lost its end is made whole from its dataset, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.artifacts import RunArtifacts
from collector.errors import BrokenInventoryError, RefusedError
from collector.formats.inventory import digest_of_lines
from collector.formats.manifest import ShardPlace
from collector.preparation.inventory_repair import restore_inventory
from collector.preparation.materialize import materialize
from collector.preparation.prepare import new_manifest, prepare_shard
from collector.settings import RunSettings
from tests.collector.shards import asked, fill, prepare, settings_for, states, write_dataset


def never() -> None:
    """A fence that is never lost."""


@pytest.fixture
def settings(tmp_path: Path) -> RunSettings:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": n, "grade": 1} for n in range(6)])
    return settings_for(tmp_path)


def dealt(settings: RunSettings, hand: list[int]) -> tuple[RunArtifacts, bytes]:
    """One shard of three with the rows of ``hand``, and its inventory."""
    made = materialize(settings)
    whole, artifacts = list(made), RunArtifacts(settings.output_jsonl_fpath)
    lines = [whole[position] for position in hand]
    place = ShardPlace(index=0, count=3, whole_digest=made.digest, whole_expected=len(made))
    update = {"expected": len(lines), "inventory_digest": digest_of_lines(lines), "shard": place}
    prepare_shard(artifacts, lines, new_manifest(settings, made, benchmark="test").model_copy(update=update))
    return artifacts, b"".join(lines)


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_a_whole_inventory_comes_back_however_much_of_its_end_is_gone(settings: RunSettings, rows: int) -> None:
    fill(settings)
    path = RunArtifacts(settings.output_jsonl_fpath).inventory
    whole = path.read_bytes()
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:rows]))

    fill(settings)

    assert path.read_bytes() == whole
    assert states(settings) == {"measured": 6}
    assert set(asked(settings.input_jsonl_fpath.parent).values()) == {1}


def test_the_last_row_of_a_dealt_shard_is_the_one_that_gives_its_digest(settings: RunSettings) -> None:
    artifacts, whole = dealt(settings, [1, 4])
    artifacts.inventory.write_bytes(whole[:-20])

    assert restore_inventory(artifacts, settings, never)

    assert artifacts.inventory.read_bytes() == whole
    assert not restore_inventory(artifacts, settings, never)


def test_two_missing_rows_of_a_dealt_shard_are_refused_and_nothing_is_touched(settings: RunSettings) -> None:
    artifacts, whole = dealt(settings, [1, 2, 4])
    left = whole.splitlines(keepends=True)[0]
    artifacts.inventory.write_bytes(left)

    with pytest.raises(BrokenInventoryError, match="2 of 3 rows are gone, and the dataset does not tell which"):
        restore_inventory(artifacts, settings, never)

    assert artifacts.inventory.read_bytes() == left


def test_a_dataset_that_was_changed_since_does_not_mend_an_inventory(settings: RunSettings) -> None:
    artifacts = prepare(settings)
    cut = artifacts.inventory.read_bytes()[:-5]
    artifacts.inventory.write_bytes(cut)
    write_dataset(settings.input_jsonl_fpath, [{"n": n, "grade": 0} for n in range(6)])

    with pytest.raises(BrokenInventoryError, match=r"tasks\.jsonl was changed since"):
        restore_inventory(artifacts, settings, never)

    assert artifacts.inventory.read_bytes() == cut


def test_a_row_that_was_changed_is_refused(settings: RunSettings) -> None:
    artifacts = prepare(settings)
    artifacts.inventory.write_bytes(artifacts.inventory.read_bytes().replace(b'"n":0', b'"n":7'))

    with pytest.raises(BrokenInventoryError, match="not the inventory the manifest was written for"):
        fill(settings)


@pytest.mark.parametrize("end", [b"", bytes(500)], ids=["cut", "nuls"])
def test_a_torn_inventory_without_a_manifest_is_an_unfinished_start(settings: RunSettings, end: bytes) -> None:
    artifacts = prepare(settings)
    whole = artifacts.inventory.read_bytes()
    artifacts.manifest.unlink()
    # Inside the first, a middle and the last row, and between rows.
    line = len(whole) // 6
    for cut in (0, 1, line - 1, line, 3 * line + 7, 5 * line, len(whole) - 1):
        artifacts.inventory.write_bytes(whole[:cut] + end)

        prepare(settings)

        assert artifacts.inventory.read_bytes() == whole, cut
        artifacts.manifest.unlink()
    fill(settings)
    assert states(settings) == {"measured": 6}


def test_an_inventory_of_something_else_without_a_manifest_is_refused(settings: RunSettings) -> None:
    artifacts = prepare(settings)
    artifacts.manifest.unlink()
    other = artifacts.inventory.read_bytes().replace(b'"n":0', b'"n":7')
    artifacts.inventory.write_bytes(other)

    with pytest.raises(RefusedError, match="without a manifest: rollouts_materialized_inputs"):
        prepare(settings)

    assert artifacts.inventory.read_bytes() == other

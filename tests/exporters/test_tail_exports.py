"""Exports at the end of a benchmark: once a destination, redone after a crash, and never the evaluation's own fate."""

from __future__ import annotations

import errno
import os
import shutil
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from collector import durable
from collector.errors import StorageError, UnavailableError
from collector.settings import RetrySettings
from exporters import once
from exporters.ledger import Ledger, read_events
from exporters.tail import TailResult, finish_benchmark
from merge.publication.lock import waiting_lock
from merge.tail import MergeState
from tests.merge.build import Plan, answered, failed, fill, fill_all, plan

RETRY = RetrySettings()


@pytest.fixture
def made(tmp_path: Path) -> Plan:
    return plan(tmp_path / "bench", shards=2, tasks=4)


def finish(made: Plan, exports: dict[str, dict[str, Any]], *, retry: RetrySettings = RETRY) -> TailResult:
    return finish_benchmark(made.merged, made.shards, benchmark="bench", retry=retry, exports=exports)


def atif(folder: Path) -> dict[str, dict[str, Any]]:
    return {"atif": {"output_dirpath": str(folder), "agent_version": "1.0.0"}}


def test_a_finished_benchmark_is_merged_and_exported(made: Plan, tmp_path: Path) -> None:
    fill_all(made, lambda *_: answered())

    result = finish(made, atif(tmp_path / "atif"))

    assert result.state is MergeState.MERGED
    assert result.exports["atif"].lines("atif") == [
        "Export atif: succeeded",
        "  trajectories: 4",
        f"  folder: {tmp_path / 'atif'}",
        f"  manifest sha256: {result.exports['atif'].evidence}",
    ]
    assert [entry.event for entry in read_events(made.merged.exports)] == ["started", "succeeded"]


def test_nothing_is_exported_while_a_shard_is_unfinished(made: Plan, tmp_path: Path) -> None:
    fill(made, 0, lambda *_: answered())

    result = finish(made, atif(tmp_path / "atif"))

    assert result.state is MergeState.WAITING
    assert result.exports == {}
    assert not (tmp_path / "atif").exists()


def test_an_export_that_stands_is_not_repeated(made: Plan, tmp_path: Path) -> None:
    fill_all(made, lambda *_: answered())
    first = finish(made, atif(tmp_path / "atif"))

    second = finish(made, atif(tmp_path / "atif"))

    assert second.exports["atif"].message == "already exported"
    assert second.exports["atif"].evidence == first.exports["atif"].evidence
    assert len(read_events(made.merged.exports)) == 2


def test_an_export_that_somebody_removed_is_made_again(made: Plan, tmp_path: Path) -> None:
    fill_all(made, lambda *_: answered())
    first = finish(made, atif(tmp_path / "atif"))
    shutil.rmtree(tmp_path / "atif")

    second = finish(made, atif(tmp_path / "atif"))

    assert second.exports["atif"].evidence == first.exports["atif"].evidence
    assert (tmp_path / "atif" / "manifest.jsonl").is_file()


def test_two_destinations_are_two_exports(made: Plan, tmp_path: Path) -> None:
    fill_all(made, lambda *_: answered())
    finish(made, atif(tmp_path / "one"))

    finish(made, atif(tmp_path / "two"))

    assert (tmp_path / "one" / "manifest.jsonl").read_bytes() == (tmp_path / "two" / "manifest.jsonl").read_bytes()


def test_a_failed_export_leaves_the_merge_as_it_is_and_is_tried_again(made: Plan, tmp_path: Path) -> None:
    fill_all(made, lambda *_: answered())
    (tmp_path / "blocked").write_text("")

    result = finish(made, atif(tmp_path / "blocked" / "atif"))

    assert result.state is MergeState.MERGED
    assert result.receipt is not None
    assert "blocked" in result.exports["atif"].message
    (tmp_path / "blocked").unlink()
    assert finish(made, atif(tmp_path / "blocked" / "atif")).exports["atif"].is_success


def test_bad_settings_and_unknown_exporters_are_failed_exports_beside_good_ones(made: Plan, tmp_path: Path) -> None:
    fill_all(made, lambda *_: answered())
    exports = {**atif(tmp_path / "atif"), "atfi": {}}

    result = finish(made, exports)
    numbered = finish(made, {"atif": {"output_dirpath": str(tmp_path / "b"), "agent_version": 1}})

    assert result.exports["atif"].is_success
    assert "Did you mean 'atif'?" in result.exports["atfi"].message
    assert "export.atif.agent_version" in numbered.exports["atif"].message


def test_what_a_killed_export_had_published_counts(made: Plan, tmp_path: Path) -> None:
    fill_all(made, lambda *_: answered())
    first = finish(made, atif(tmp_path / "atif"))
    lines = made.merged.exports.read_bytes().splitlines(keepends=True)
    made.merged.exports.write_bytes(lines[0])

    second = finish(made, atif(tmp_path / "atif"))

    assert second.exports["atif"] == first.exports["atif"]
    assert [entry.event for entry in read_events(made.merged.exports)] == ["started", "succeeded"]


def test_a_folder_of_somebody_else_is_no_export_of_ours(made: Plan, tmp_path: Path) -> None:
    fill_all(made, lambda *_: answered())
    merged = finish(made, {})
    assert merged.receipt is not None
    (tmp_path / "atif").mkdir()
    (tmp_path / "atif" / "mine").touch()
    Ledger(made.merged, "atif", str(tmp_path / "atif"), merged.receipt.output.sha256).start()

    result = finish(made, atif(tmp_path / "atif"))

    assert "exists already" in result.exports["atif"].message
    assert [path.name for path in (tmp_path / "atif").iterdir()] == ["mine"]


def test_a_new_projection_is_not_written_over_files_that_somebody_put_into_the_old_export(made: Plan, tmp_path: Path) -> None:
    fill_all(made, lambda task, _: [failed(terminal=False)] * 3 if task == 0 else answered())
    finish(made, atif(tmp_path / "atif"))
    before = (tmp_path / "atif" / "manifest.jsonl").read_bytes()
    (tmp_path / "atif" / "notes.txt").write_text("mine")
    fill(made, 0, lambda task, _: answered() if task == 0 else [])

    result = finish(made, atif(tmp_path / "atif"), retry=RetrySettings(max_attempts=4))

    assert result.state is MergeState.MERGED
    assert "exists already" in result.exports["atif"].message
    assert (tmp_path / "atif" / "manifest.jsonl").read_bytes() == before
    assert (tmp_path / "atif" / "notes.txt").read_text() == "mine"


def test_the_folder_stands_again_when_the_new_one_cannot_take_its_name(
    made: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_all(made, lambda task, _: [failed(terminal=False)] * 3 if task == 0 else answered())
    finish(made, atif(tmp_path / "atif"))
    before = (tmp_path / "atif" / "manifest.jsonl").read_bytes()
    fill(made, 0, lambda task, _: answered() if task == 0 else [])
    rename, calls = os.rename, count(1)

    def failing(source: Path, target: Path) -> None:
        if Path(target) == tmp_path / "atif" and next(calls) == 1:
            raise OSError(errno.EIO, "Input/output error", str(target))
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    result = finish(made, atif(tmp_path / "atif"), retry=RetrySettings(max_attempts=4))

    assert "Input/output error" in result.exports["atif"].message
    assert (tmp_path / "atif" / "manifest.jsonl").read_bytes() == before
    assert finish(made, atif(tmp_path / "atif"), retry=RetrySettings(max_attempts=4)).exports["atif"].is_success
    assert not list(tmp_path.glob(".*.tmp"))


def test_an_export_killed_between_the_old_folder_and_the_new_is_made_again(made: Plan, tmp_path: Path) -> None:
    fill_all(made, lambda task, _: [failed(terminal=False)] * 3 if task == 0 else answered())
    finish(made, atif(tmp_path / "atif"))
    fill(made, 0, lambda task, _: answered() if task == 0 else [])
    merged = finish(made, {}, retry=RetrySettings(max_attempts=4))
    assert merged.receipt is not None
    Ledger(made.merged, "atif", str(tmp_path / "atif"), merged.receipt.output.sha256).start()
    (tmp_path / "atif").rename(tmp_path / f".atif.{'0' * 16}.tmp")

    result = finish(made, atif(tmp_path / "atif"), retry=RetrySettings(max_attempts=4))

    assert result.exports["atif"].is_success
    assert [path.name for path in tmp_path.iterdir() if "atif" in path.name] == ["atif"]


def test_a_broken_ledger_is_a_failed_export_with_its_line(made: Plan, tmp_path: Path) -> None:
    fill_all(made, lambda *_: answered())
    finish(made, {})
    made.merged.exports.write_bytes(b"junk\n")

    result = finish(made, atif(tmp_path / "atif"))

    assert "rollouts_exports.jsonl:1: not an export event" in result.exports["atif"].message


def test_a_lock_that_cannot_be_taken_is_a_failed_export_beside_good_ones(
    made: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Met on a full disk and on a file system without locks: the lock says so with an error of its own."""
    fill_all(made, lambda *_: answered())
    refused = iter([UnavailableError("the file system has no locks."), StorageError("it cannot be written.")])

    def lock(path: Path, **how: Any) -> Any:
        if error := next(refused, None):
            raise error
        return waiting_lock(path, **how)

    monkeypatch.setattr(once, "waiting_lock", lock)
    exports = {"csv": {"output_fpath": str(tmp_path / "rows.csv")}, "inspect": {"output_fpath": str(tmp_path / "x.eval")}}

    results = finish(made, {**exports, **atif(tmp_path / "atif")}).exports

    assert {name: result.is_success for name, result in results.items()} == {"csv": False, "inspect": False, "atif": True}
    assert results["csv"].message == "the file system has no locks."


@pytest.mark.parametrize("name", ["atif", "csv"])
def test_what_arrived_before_its_folder_could_not_be_synced_is_found_once_it_can(
    name: str, made: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_all(made, lambda *_: answered())
    finish(made, {})
    place = tmp_path / "out" / name
    place.parent.mkdir()
    exports = {name: atif(place)["atif"] if name == "atif" else {"output_fpath": str(place)}}
    sync = durable.sync_dir

    def fail_there(path: Path) -> None:
        if path == place.parent and place.exists():
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        sync(path)

    with monkeypatch.context() as broken:
        for module in (durable, durable.names):
            broken.setattr(module, "sync_dir", fail_there)
        first, second = (finish(made, exports).exports[name] for _ in range(2))
    third = finish(made, exports).exports[name]

    assert place.exists()
    assert [(result.is_success, "Input/output error" in result.message) for result in (first, second)] == [(False, True)] * 2
    assert third.is_success, third.message
    assert [entry.event for entry in read_events(made.merged.exports)] == ["started", "failed", "succeeded"]


def test_a_sweep_that_fails_is_recorded_with_its_reason(made: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_all(made, lambda *_: answered())

    def fail(_: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        finish(made, {})
        broken.setattr(durable, "sweep", fail)
        result = finish(made, atif(tmp_path / "atif")).exports["atif"]

    assert not result.is_success
    assert [(e.event, e.reason) for e in read_events(made.merged.exports)] == [("started", ""), ("failed", result.message)]
    assert finish(made, atif(tmp_path / "atif")).exports["atif"].is_success

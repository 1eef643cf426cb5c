"""What a projection holds: the selected row of each rollout, byte for byte, in (task, repeat) order."""

from __future__ import annotations

import hashlib
import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from collector.artifacts import RunArtifacts
from collector.durable import StagedFile
from collector.errors import CorruptArtifactError, RefusedError, UnavailableError
from collector.outcomes import Omitted
from collector.settings import RetrySettings
from merge.command import merge_paths
from merge.inputs.shards import read_shard
from merge.publication import publish
from merge.publication.projection_check import ProjectionState, check_projection
from merge.publication.publish import Part, publish_parts
from merge.rows.blocks import read_rows
from tests.merge.build import Outcome, answered, failed, fill_all, plan


def keys_in(path: Path) -> list[tuple[int, int]]:
    found = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    return [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in found]


@pytest.mark.parametrize("round_robin", [pytest.param(False, id="contiguous-parts"), pytest.param(True, id="in-turn")])
@pytest.mark.parametrize("order", [pytest.param(1, id="recorded-in-order"), pytest.param(-1, id="recorded-backwards")])
def test_rows_stand_in_task_and_repeat_order_however_they_were_split_and_recorded(
    tmp_path: Path, round_robin: bool, order: int
) -> None:
    made = plan(tmp_path / "b", shards=3, tasks=10, repeats=3, round_robin=round_robin)
    fill_all(made, lambda task, repeat: answered(float(task % 2), text=f"{task}-{repeat}"), order=order)

    report = merge_paths([made.directory], made.merged.rollouts)

    assert keys_in(made.merged.rollouts) == [(task, repeat) for task in range(10) for repeat in range(3)]
    assert report.receipt.output.rows == 30


def test_every_row_is_the_one_its_collector_wrote_byte_for_byte(tmp_path: Path) -> None:
    made = plan(tmp_path / "b", shards=2, tasks=6, row={"note": "a\u2028b\u0085c", "big": 12345678901234567890123})
    fill_all(made, lambda task, _: answered(1.0, text=f"\u2028{task}\x0b"))
    written = b"".join(shard.rollouts.read_bytes() for shard in made.shards)

    report = merge_paths([made.directory], made.merged.rollouts)

    merged = made.merged.rollouts.read_bytes()
    assert sorted(merged.split(b"\n")) == sorted(written.split(b"\n"))
    assert report.receipt.output.sha256 == hashlib.sha256(merged).hexdigest()
    assert report.receipt.output.size_bytes == len(merged)


def test_only_completed_answers_of_the_latest_attempt_are_in_it(tmp_path: Path) -> None:
    made = plan(tmp_path / "b", shards=2, tasks=6)
    histories: dict[int, list[Outcome]] = {
        0: [failed(terminal=False), answered(1.0, text="second try")],
        1: [answered(0.5, masked=True)],
        2: [answered(None)],
        3: [failed()],
        4: [Omitted(reason="asked for")],
        5: [answered(0.0)],
    }
    fill_all(made, lambda task, _: histories[task])

    report = merge_paths([made.directory], made.merged.rollouts)

    assert [task for task, _ in keys_in(made.merged.rollouts)] == [0, 1, 2, 5]
    assert b"second try" in made.merged.rollouts.read_bytes()
    assert {state.value: n for state, n in report.coverage.states.items() if n} == {
        "measured": 2, "masked": 1, "unscored": 1, "failed": 1, "omitted": 1,
    }  # fmt: skip


def test_a_row_that_is_not_the_recorded_one_is_named_and_the_old_target_stays(tmp_path: Path) -> None:
    made = plan(tmp_path / "b", shards=2, tasks=6)
    shards = fill_all(made, lambda task, _: answered(1.0, text=f"answer {task}"))
    made.merged.rollouts.write_bytes(b"old\n")
    data = shards[1].rollouts.read_bytes()
    shards[1].rollouts.write_bytes(data.replace(b"answer 4", b"answer 5", 1))

    with pytest.raises(CorruptArtifactError, match=r"rollout 4-0 .* is not the one recorded") as caught:
        merge_paths([made.directory], made.merged.rollouts)

    assert str(shards[1].rollouts) in str(caught.value)
    assert made.merged.rollouts.read_bytes() == b"old\n"
    assert not list(made.directory.glob(".*.tmp"))


def test_a_last_row_whose_newline_a_crash_cut_off_is_whole_in_the_projection(tmp_path: Path) -> None:
    made = plan(tmp_path / "b", shards=2, tasks=4)
    shards = fill_all(made, lambda *_: answered())
    before = shards[0].rollouts.read_bytes()
    shards[0].rollouts.write_bytes(before[:-1])

    merge_paths([made.directory], made.merged.rollouts)

    assert made.merged.rollouts.read_bytes().startswith(before)
    assert keys_in(made.merged.rollouts) == [(task, 0) for task in range(4)]
    assert shards[0].rollouts.read_bytes() == before[:-1]


def test_a_link_stays_a_link_and_the_mode_of_its_target_is_kept(tmp_path: Path) -> None:
    made = plan(tmp_path / "b", shards=2, tasks=4)
    fill_all(made, lambda *_: answered())
    real = tmp_path / "elsewhere" / "real.jsonl"
    real.parent.mkdir()
    real.write_bytes(b"old\n")
    real.chmod(0o640)
    link = tmp_path / "link.jsonl"
    link.symlink_to(real)

    merge_paths([made.directory], link)

    assert link.is_symlink()
    assert link.readlink() == real
    assert len(keys_in(real)) == 4
    assert real.stat().st_mode & 0o777 == 0o640


def test_inputs_and_their_companions_are_never_changed(tmp_path: Path) -> None:
    made = plan(tmp_path / "b", shards=3, tasks=9, repeats=2)
    fill_all(made, lambda task, _: failed() if task % 3 == 0 else answered())
    before = {path: path.read_bytes() for path in (made.directory / "shards").rglob("*") if path.is_file()}

    merge_paths([made.directory], made.merged.rollouts)

    assert {path: path.read_bytes() for path in (made.directory / "shards").rglob("*") if path.is_file()} == before


def test_the_receipt_names_what_was_merged_and_says_partial_only_when_it_is(tmp_path: Path) -> None:
    made = plan(tmp_path / "b", shards=3, tasks=6)
    shards = fill_all(made, lambda *_: answered())

    merge_paths([made.directory], made.merged.rollouts)

    whole = json.loads(made.merged.receipt.read_bytes())
    assert next(iter(whole)) == "schema_version"
    assert [entry["path"] for entry in whole["inputs"]] == [f"shards/{i}-of-3/rollouts.jsonl" for i in range(3)]
    assert [entry["size_bytes"] for entry in whole["inputs"]] == [shard.rollouts.stat().st_size for shard in shards]

    other = RunArtifacts(tmp_path / "part.jsonl")
    merge_paths([shard.rollouts for shard in shards[:2]], other.rollouts, allow_partial=True)

    part = json.loads((tmp_path / "part.partial_merge.json").read_bytes())
    assert not other.rollouts.exists()
    assert next(iter(part)) == "partial"
    assert part["partial"] is True
    assert part["missing_shards"] == [2]


@pytest.mark.parametrize("calls", [0, 1, 2, 3], ids=["projection", "metrics", "coverage", "receipt"])
def test_a_full_disk_is_told_in_one_line_and_the_next_merge_makes_it_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    made = plan(tmp_path / "b", shards=2, tasks=4)
    fill_all(made, lambda *_: answered())
    made.merged.rollouts.write_bytes(b"old\n")
    left = iter([True] * calls)

    def until_full(write: Callable[..., None]) -> Callable[..., None]:
        def written(*args: Any) -> None:
            if not next(left, False):
                raise OSError(28, "No space left on device")
            write(*args)

        return written

    with monkeypatch.context() as patch:
        patch.setattr(StagedFile, "write", until_full(StagedFile.write))
        patch.setattr(StagedFile, "write_at", until_full(StagedFile.write_at))
        with pytest.raises(UnavailableError, match="No space left on device") as caught:
            merge_paths([made.directory], made.merged.rollouts)

    files = (made.merged.rollouts, made.merged.aggregate, made.merged.coverage, made.merged.receipt)
    assert str(caught.value).startswith(f"{files[calls]}: ")
    assert (made.merged.rollouts.read_bytes() == b"old\n") is (calls < 2)
    assert check_projection(made.merged).state is ProjectionState.ABSENT
    merge_paths([made.directory], made.merged.rollouts)
    assert check_projection(made.merged).state is ProjectionState.VERIFIED


def test_a_disk_that_fails_while_rows_are_still_copied_is_told_and_the_old_target_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = plan(tmp_path / "b", shards=2, tasks=4)
    fill_all(made, lambda *_: answered())
    made.merged.rollouts.write_bytes(b"old\n")

    def failing(file: StagedFile) -> None:
        raise OSError(5, "Input/output error")

    # The kernel tells of bytes that it lost once: a later fsync of the whole file says that all is well.
    monkeypatch.setattr(publish, "_SYNC_EVERY", 1)
    monkeypatch.setattr(StagedFile, "sync", failing)
    with pytest.raises(UnavailableError, match="Input/output error"):
        merge_paths([made.directory], made.merged.rollouts)

    assert made.merged.rollouts.read_bytes() == b"old\n"
    assert not list(made.directory.glob(".*.tmp"))


def test_a_file_that_is_replaced_while_it_is_merged_is_refused(tmp_path: Path) -> None:
    made = plan(tmp_path / "b", shards=1, tasks=4)
    (shard,) = fill_all(made, lambda *_: answered())
    view = read_shard(shard, RetrySettings())
    other = shard.rollouts.with_name("other")
    other.write_bytes(shard.rollouts.read_bytes())
    other.rename(shard.rollouts)

    with pytest.raises(RefusedError, match="replaced while it was merged"):
        list(read_rows([view]))


def test_an_input_that_grows_while_it_is_merged_leaves_the_target_as_it_was(tmp_path: Path) -> None:
    made = plan(tmp_path / "b", shards=1, tasks=4)
    (shard,) = fill_all(made, lambda *_: answered())
    view = read_shard(shard, RetrySettings())
    target = tmp_path / "t.jsonl"
    target.write_bytes(b"old\n")
    with shard.rollouts.open("ab") as file:
        file.write(b'{"late": 1}\n')

    with pytest.raises(RefusedError, match="changed while it was merged"):
        publish_parts(target, [Part([view])])
    assert target.read_bytes() == b"old\n"


def test_more_shards_than_open_files_are_allowed_merge(tmp_path: Path) -> None:
    made = plan(tmp_path / "b", shards=60, tasks=120, round_robin=True)
    fill_all(made, lambda *_: answered())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = len(list(Path("/proc/self/fd").iterdir()))

    resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 20, hard))
    try:
        merge_paths([made.directory], made.merged.rollouts)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert keys_in(made.merged.rollouts) == [(task, 0) for task in range(120)]

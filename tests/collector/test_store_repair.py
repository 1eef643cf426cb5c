"""What a crash can leave is repaired; at most the record that was not acknowledged is done again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.artifacts import RunArtifacts
from collector.errors import CorruptArtifactError
from collector.settings import RunSettings
from collector.shard.store import RolloutStore
from tests.collector.shards import asked, fill, rollout_ids, settings_for, states, write_dataset


@pytest.fixture
def finished(tmp_path: Path) -> RunSettings:
    """A run of four rollouts, one failed and one attempt failed on the way; the last row of each file is known."""
    write_dataset(
        tmp_path / "tasks.jsonl",
        [
            {"n": 0, "grade": 1, "say": "äé"},
            {"n": 1, "grade": 0},
            {"n": 2, "grade": 1, "fail": 1},
            {"n": 3, "fail": 9, "grade": 1},
        ],
    )
    settings = settings_for(tmp_path, num_samples_in_parallel=1)
    fill(settings)
    return settings


def copies(settings: RunSettings, name: str) -> tuple[RunSettings, RunArtifacts]:
    source = settings.output_jsonl_fpath.parent
    target = source.with_name(name)
    shutil.copytree(source, target)
    moved = settings.model_copy(update={"output_jsonl_fpath": target / "rollouts.jsonl"})
    return moved, RunArtifacts(moved.output_jsonl_fpath)


def last_line(data: bytes) -> int:
    """Where the last line of ``data`` begins."""
    return data.rstrip(b"\n").rfind(b"\n") + 1


def damages(whole: bytes, first: int) -> Iterator[tuple[str, bytes]]:
    """The file cut at every byte from ``first`` on, as it is then and with the lost bytes as NULs."""
    for cut in range(first, len(whole)):
        yield f"cut at {cut}", whole[:cut]
        yield f"NULs from {cut} on", whole[:cut] + bytes(len(whole) - cut)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("which", ["journal", "rollouts", "failures", "inventory"])
def test_the_last_record_cut_at_any_byte_is_redone_or_kept_and_nothing_else_changes(finished: RunSettings, which: str) -> None:
    expected = states(finished)
    whole = getattr(RunArtifacts(finished.output_jsonl_fpath), which).read_bytes()
    # With the last record of a row file gone completely, its event stands without a row; the others may end anywhere.
    first = last_line(whole) + (which in {"rollouts", "failures"})
    for what, damaged in damages(whole, first):
        # A row that was recorded is durable before its event, on every file system that honours fsync.
        if which in {"rollouts", "failures"} and damaged.endswith(b"\0"):
            continue
        settings, artifacts = copies(finished, "damaged")
        getattr(artifacts, which).write_bytes(damaged)

        fill(settings.model_copy(update={"retry": settings.retry.model_copy(update={"max_attempts": 4})}))

        with RolloutStore.read(artifacts) as store:
            assert not store.repairs.lines, what
            assert not store.repairs.recovered, what
        assert sorted(set(rollout_ids(artifacts.rollouts))) == sorted(rollout_ids(artifacts.rollouts)), what
        assert states(settings) == expected, what
        if which == "inventory":
            assert artifacts.inventory.read_bytes() == whole, what
        shutil.rmtree(settings.output_jsonl_fpath.parent)


@pytest.mark.parametrize("which", ["journal", "rollouts", "failures"])
def test_nul_bytes_behind_the_last_record_are_a_torn_tail(finished: RunSettings, which: str) -> None:
    expected = states(finished)
    path = getattr(RunArtifacts(finished.output_jsonl_fpath), which)
    path.write_bytes(path.read_bytes() + bytes(3000))

    fill(finished)

    assert b"\0" not in path.read_bytes()
    assert states(finished) == expected


@pytest.mark.parametrize("which", ["rollouts", "failures"])
def test_an_event_without_any_of_its_row_is_refused_and_nothing_is_touched(finished: RunSettings, which: str) -> None:
    artifacts = RunArtifacts(finished.output_jsonl_fpath)
    path = getattr(artifacts, which)
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rstrip(b"\n").rfind(b"\n") + 1])
    before = {file: file.read_bytes() for file in path.parent.iterdir() if file.suffix != ".lock"}

    with pytest.raises(CorruptArtifactError, match=r"rollouts_attempts\.jsonl:\d+: it records a row up to byte"):
        fill(finished)

    assert {file: file.read_bytes() for file in before} == before


@pytest.mark.parametrize("kind", ["success", "failure"])
def test_a_row_without_its_event_is_recovered_and_not_asked_again(tmp_path: Path, kind: str) -> None:
    last = {"n": 1, "grade": 1, "fail": 9 if kind == "failure" else 0}
    write_dataset(tmp_path / "tasks.jsonl", [{"n": 0, "grade": 1}, last])
    settings = settings_for(tmp_path, num_samples_in_parallel=1, retry={"max_attempts": 1})
    fill(settings)
    artifacts, expected, calls = RunArtifacts(settings.output_jsonl_fpath), states(settings), asked(tmp_path)
    lines = artifacts.journal.read_bytes().splitlines(keepends=True)
    position = max(n for n, line in enumerate(lines) if f'"event":"{kind}"'.encode() in line)
    artifacts.journal.write_bytes(b"".join(lines[:position]))

    fill(settings)

    assert (states(settings), asked(tmp_path)) == (expected, calls)
    assert b'"recovered":true' in artifacts.journal.read_bytes()


def damage_journal(artifacts: RunArtifacts, old: bytes, new: bytes, which: int = 0) -> None:
    data = artifacts.journal.read_bytes()
    place = -1
    for _ in range(which + 1):
        place = data.index(old, place + 1)
    artifacts.journal.write_bytes(data[:place] + new + data[place + len(old) :])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        pytest.param(b'"event":"dispatched"', b'"event":"dispatch"', "not a journal event", id="unknown-event"),
        pytest.param(b'"schema_version":1', b'"schema_version":2', "format 2 is not supported", id="newer-format"),
        pytest.param(
            b'"attempt_index":0', b'"attempt_index":1', "attempt 1 is dispatched after attempt -1", id="skipped-attempt"
        ),
        pytest.param(b'"run_id":"0', b'"run_id":"1', "an event of run 1000", id="foreign-run"),
        pytest.param(b'"rollout_id":"0-0"', b'"rollout_id":"9-0"', "not in the inventory", id="foreign-rollout"),
        pytest.param(b'"seq":1', b'"seq":2', "event 2 of session 0 stands where event 1 belongs", id="missing-event"),
    ],
)
def test_a_journal_that_no_crash_explains_is_named_by_line(finished: RunSettings, old: bytes, new: bytes, message: str) -> None:
    artifacts = RunArtifacts(finished.output_jsonl_fpath)
    damage_journal(artifacts, old, new)
    before = artifacts.rollouts.read_bytes()

    with pytest.raises(CorruptArtifactError, match=message) as caught:
        fill(finished.model_copy(update={"allow_unsafe_resume": True}))

    assert "rollouts_attempts.jsonl:" in str(caught.value)
    assert artifacts.rollouts.read_bytes() == before


def test_an_outcome_without_its_dispatch_is_refused(finished: RunSettings) -> None:
    artifacts = RunArtifacts(finished.output_jsonl_fpath)
    damage_journal(
        artifacts,
        b'"event":"success","rollout_id":"0-0","attempt_index":0',
        b'"event":"success","rollout_id":"0-0","attempt_index":7',
    )

    with pytest.raises(CorruptArtifactError, match="attempt 7 of 0-0 has an outcome and was never dispatched"):
        fill(finished)


def append_row(artifacts: RunArtifacts, change: tuple[bytes, bytes]) -> None:
    first = artifacts.rollouts.read_bytes().split(b"\n")[0] + b"\n"
    artifacts.rollouts.write_bytes(artifacts.rollouts.read_bytes() + first.replace(*change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param((b'"_ng_run_id":"0', b'"_ng_run_id":"1'), "a row of run 1000", id="foreign-run"),
        pytest.param((b'"reward":1', b'"reward":0'), "has two outcomes", id="second-result"),
        pytest.param((b'"_ng_task_index":0', b'"_ng_task_index":77'), "'77-0' is not in the inventory", id="foreign-rollout"),
        pytest.param((b'"_ng_session":0', b'"_ng_session":5'), "never dispatched", id="future-session"),
        pytest.param(
            (b'"_ng_session":0', b'"_ng_session":0,"_ng_attempt_index":3'),
            "attempt 3 of 0-0 was never dispatched",
            id="undispatched",
        ),
        pytest.param((b'"reward":1', b'"reward":"1"'), "not a row of this run", id="reward-is-text"),
    ],
)
def test_a_row_that_no_crash_explains_is_named_by_line(
    finished: RunSettings, change: tuple[bytes, bytes], message: str
) -> None:
    artifacts = RunArtifacts(finished.output_jsonl_fpath)
    rows_before = artifacts.rollouts.read_bytes().count(b"\n")
    append_row(artifacts, change)

    with pytest.raises(CorruptArtifactError, match=message) as caught:
        fill(finished)

    assert f"rollouts.jsonl:{rows_before + 1}" in str(caught.value)


def test_a_row_written_by_a_collector_that_had_lost_the_shard_never_wins(finished: RunSettings) -> None:
    artifacts = RunArtifacts(finished.output_jsonl_fpath)
    fill(finished.model_copy(update={"retry": finished.retry.model_copy(update={"max_attempts": 4})}))
    expected = states(finished)
    append_row(artifacts, (b'"reward":1', b'"reward":0'))
    data = artifacts.rollouts.read_bytes()
    # Session 1 owns nothing of rollout 0-0, so a row of it for that rollout belongs to a session that had ended.
    head, _, tail = data.rpartition(b'"_ng_session":0')
    artifacts.rollouts.write_bytes(head + b'"_ng_session":1' + tail)

    fill(finished)

    assert states(finished) == expected


@pytest.mark.parametrize("which", ["rollouts", "journal", "failures", "inventory"])
def test_a_missing_companion_is_named(finished: RunSettings, which: str) -> None:
    artifacts = RunArtifacts(finished.output_jsonl_fpath)
    path = getattr(artifacts, which)
    path.unlink()

    with pytest.raises(CorruptArtifactError, match="is missing") as caught:
        fill(finished)

    assert str(path) in str(caught.value)

"""Faults of files, as people met them: torn, fused, foreign, or only some of a set."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

import pytest

from collector.errors import CorruptArtifactError, GymEvalError, LockHeldError, RefusedError
from tests.outcomes.bench import Bench


@pytest.mark.parametrize("which", ["rollouts", "failures", "journal"])
@pytest.mark.parametrize("again", [pytest.param(False, id="one-crash"), pytest.param(True, id="a-second-while-repairing")])
def test_d1_a_line_cut_anywhere_costs_at_most_its_own_record_and_is_never_glued_to_the_next(
    bench: Bench, which: str, again: bool
) -> None:
    """Half a line stays after a kill: for cuts all over the last record, the resume ends as the uninterrupted run did."""
    bench.tasks({}, {"say": "a\u2028ä\U0001f600"}, {"acts": [{"reason": "ä\u2028"}] * 9})
    bench.base["retry"] = {"max_attempts": 2}
    bench.fill()
    whole, expected = bench.contents(), bench.states()
    path = getattr(bench.artifacts, which)
    data = whole[path.name]
    begin = data.rstrip(b"\n").rfind(b"\n") + 1
    places = sorted(
        {*range(begin + 1, len(data), max(1, (len(data) - begin) // 12)), len(data) - 1, *cuts_in_characters(data, begin)}
    )
    for place in places:
        for name, content in whole.items():
            (path.parent / name).write_bytes(content)
        path.write_bytes(data[:place])
        bench.log.unlink()
        if again:
            bench.fill(dispatch_budget_s=0)
            bench.artifacts.journal.write_bytes(bench.artifacts.journal.read_bytes()[:-7])

        bench.fill(retry={"max_attempts": 4})

        found = [(saved["n"], saved.get("_ng_attempt_index", 0)) for saved in bench.rows() + bench.failures()]
        assert len(found) == len(set(found)), place
        assert bench.states(retry={"max_attempts": 4})["measured"] == expected["measured"], place


def cuts_in_characters(data: bytes, begin: int) -> set[int]:
    """Places within multi-byte characters of the last record."""
    return {place for place in range(begin + 1, len(data)) if data[place] & 0xC0 == 0x80}


def test_d1_an_inventory_that_lost_its_end_is_made_whole(bench: Bench) -> None:
    """The manifest says what it was, and the dataset is still there: the same bytes again, and a complete run."""
    bench.tasks({}, {}, {})
    bench.fill(dispatch_budget_s=0)
    whole = bench.artifacts.inventory.read_bytes()
    bench.artifacts.inventory.write_bytes(whole[:-9])

    coverage = bench.fill().coverage

    assert bench.artifacts.inventory.read_bytes() == whole
    assert coverage.measured == 3


@pytest.mark.parametrize("size", [2500, 3001, 4200])
def test_d1_a_write_cut_short_by_a_full_file_system_ends_the_run_and_loses_nothing(bench: Bench, size: int) -> None:
    """No file may grow beyond so many bytes: a write is cut in the middle, the command says so, and a resume completes the run."""
    bench.tasks(*[{"say": f"{'x' * 100}{n}"} for n in range(20)])

    process = bench.start(num_samples_in_parallel=4)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    _, said = process.communicate(timeout=50)
    before = dict(bench.asked())
    coverage = bench.fill(num_samples_in_parallel=4).coverage

    assert process.returncode not in {0, 6, 7}, said
    assert "file too large" in said.lower()
    assert sorted(found["n"] for found in bench.rows()) == list(range(20))
    assert coverage.measured == 20
    assert sum(bench.asked().values()) - sum(before.values()) <= 20


@pytest.mark.parametrize("spelling", ["link", "dots", "double-slash", "relative"])
def test_d3_the_same_shard_under_another_name_is_the_same_lock(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    """Two collectors that spell the path differently: the second finds the lock held and writes nothing."""
    bench.tasks({"acts": ["hang"]}, {})
    process = bench.start(num_samples_in_parallel=2)
    bench.wait_for_rows(1)
    before = bench.contents()
    (tmp_path / "link").symlink_to(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    other = {
        "link": tmp_path / "link" / "rollouts.jsonl",
        "dots": tmp_path / "run" / ".." / "run" / "rollouts.jsonl",
        "double-slash": f"{tmp_path}//run//rollouts.jsonl",
        "relative": "run/rollouts.jsonl",
    }[spelling]

    with pytest.raises(LockHeldError, match=f"process {process.pid} on "):
        bench.fill(output_jsonl_fpath=other)

    assert bench.contents() == before
    process.kill()
    process.communicate()


def test_d3_rows_of_a_third_of_a_megabyte_stand_whole_beside_each_other(bench: Bench) -> None:
    """Sixteen at a time, 300 KB each: every line is one row, with its newline, and no byte of another."""
    bench.tasks(*[{"say": chr(65 + n) * 300_000} for n in range(24)])

    bench.fill(num_samples_in_parallel=16)

    said = {found["n"]: found["response"]["output"][0]["content"][0]["text"] for found in bench.rows()}
    assert said == {n: chr(65 + n) * 300_000 for n in range(24)}


def test_d3_a_second_writer_in_the_journal_is_noticed(bench: Bench) -> None:
    """Two collectors appended without a lock: the sequence of events does not fit, and the line is named."""
    bench.tasks({}, {})
    bench.fill()
    events = bench.artifacts.journal.read_bytes().splitlines(keepends=True)
    bench.artifacts.journal.write_bytes(b"".join([*events[:3], events[1], *events[3:]]))

    with pytest.raises(
        CorruptArtifactError, match=r"rollouts_attempts\.jsonl:4: event 1 of session 0 stands where event 3 belongs"
    ):
        bench.fill()


@pytest.mark.parametrize("which", ["rollouts", "failures", "journal"])
def test_d3_a_run_of_nul_bytes_between_records_is_no_torn_line(bench: Bench, which: str) -> None:
    """What interleaved appends over a network leave: refused with its place, never cut away as if a crash explained it."""
    bench.tasks({}, {"acts": [{}] * 3})
    bench.fill()
    path = getattr(bench.artifacts, which)
    data = path.read_bytes()
    last = data.rstrip(b"\n").rfind(b"\n") + 1
    path.write_bytes(data[:last] + b"\0" * 4096 + data[last:])
    before = bench.contents()

    with pytest.raises(CorruptArtifactError, match=path.name):
        bench.fill()

    assert bench.contents() == before


def test_d18_rows_without_their_companions_are_never_taken_for_nothing_done(bench: Bench, tmp_path: Path) -> None:
    """Only the rollouts were copied to a new place: refused with the way out, not silently begun anew over saved work."""
    bench.tasks({}, {})
    bench.fill()
    other = tmp_path / "elsewhere" / "rollouts.jsonl"
    other.parent.mkdir()
    shutil.copy(bench.artifacts.rollouts, other)
    before, calls = other.read_bytes(), bench.asked()

    with pytest.raises(RefusedError, match=r"without a manifest.*allow_unsafe_resume"):
        bench.fill(output_jsonl_fpath=other)
    with pytest.raises(CorruptArtifactError, match=r"elsewhere/rollouts_materialized_inputs\.jsonl: the file is missing"):
        bench.fill(output_jsonl_fpath=other, allow_unsafe_resume=True)

    assert (other.read_bytes(), bench.asked()) == (before, calls)


@pytest.mark.parametrize("missing", ["rollouts", "failures", "journal", "inventory", "manifest"])
def test_d21_companions_are_one_set(bench: Bench, missing: str) -> None:
    """One file of a run is gone: neither a fresh start over the others nor a resume with what is left."""
    bench.tasks({"acts": [{}] * 3}, {})
    bench.fill()
    getattr(bench.artifacts, missing).unlink()
    before, calls = bench.contents(), bench.asked()

    with pytest.raises(GymEvalError, match=r"missing|without a manifest") as caught:
        bench.fill()

    assert caught.value.exit_code == 4
    assert (bench.contents(), bench.asked()) == (before, calls)


def test_d21_a_fresh_run_on_an_old_path_is_refused_and_inherits_no_attempt(bench: Bench) -> None:
    """``resume_from_cache: false`` where a run lies: exit 4. With all its files moved away, every task has its attempts again."""
    bench.tasks({"acts": [{}, {}, {}]})
    bench.fill()
    refused = bench.run(resume_from_cache=False)
    bench.artifacts.rollouts.parent.rename(bench.directory / "moved")

    coverage = bench.fill(resume_from_cache=False).coverage

    assert refused.returncode == 4
    assert "there is a run at this path" in refused.stderr
    assert (coverage.measured, coverage.attempts) == (1, 1)

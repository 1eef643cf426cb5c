"""A file that grows, is replaced or is written over while it is checked, with a real pool of processes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from merge.health.run import check_health
from merge.health.slices import Slice, Stretch, stretches_of
from tests.health.rows import digested, issues, response, row, verdicts, write

ROWS = 160


def big(task: int) -> dict[str, object]:
    """A row of a quarter of a MiB: few of them fill more slices than one process would take alone."""
    return row(task, response=response("x" * (1 << 18)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of run A: tasks from 0 on."""
    return write(tmp_path / "rollouts.jsonl", map(big, range(ROWS))).rollouts


def test_a_pool_says_what_one_process_says(path: Path) -> None:
    artifacts = write(path, [*map(big, range(ROWS)), b"half\n", row(1)])
    alone = check_health(artifacts, workers=1)
    expected = alone.summary, alone.verdicts.read_bytes()

    pooled = check_health(artifacts, workers=2)

    assert (pooled.summary, pooled.verdicts.read_bytes()) == expected


def test_rows_of_a_file_that_took_the_path_are_never_reported(path: Path, tmp_path: Path) -> None:
    slices = list(stretches_of(path))
    other = write(tmp_path / "other.jsonl", map(big, range(9000, 9000 + ROWS))).rollouts
    other.replace(path)

    digests = digested(slices, workers=2)

    assert len(digests) == ROWS
    assert all(digest.task is None and not digest.is_readable for digest in digests)
    reasons = {finding["detail"]["reason"] for digest in digests for finding in digest.findings}
    assert reasons == {"the file was replaced since it was indexed"}


def test_a_replacement_in_the_middle_of_a_check_hides_only_what_was_not_read_yet(path: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other.jsonl", map(big, range(9000, 9000 + ROWS))).rollouts

    def slices() -> Iterator[Slice]:
        found = list(stretches_of(path))
        half = len(found) // 2
        yield from found[:half]
        other.replace(path)
        yield from found[half:]

    digests = digested(slices(), workers=2)

    assert [digest.task for digest in digests if digest.is_readable] == list(range(sum(d.is_readable for d in digests)))
    assert not digests[-1].is_readable
    assert len(digests) == ROWS


def test_a_file_written_over_in_place_is_a_finding(path: Path) -> None:
    slices = list(stretches_of(path))
    write(path, map(big, range(5000, 5000 + ROWS)))

    digests = digested(slices)

    assert {digest.task for digest in digests} == {None}


def test_a_removed_file_is_a_finding_for_each_row(path: Path) -> None:
    slices = list(stretches_of(path))
    path.unlink()

    digests = digested(slices)

    assert len(digests) == ROWS
    assert not any(digest.is_readable for digest in digests)


def test_growth_by_append_changes_nothing_of_what_was_indexed(path: Path) -> None:
    slices = list(stretches_of(path))
    with path.open("ab") as file:
        file.writelines(json.dumps(big(task)).encode() + b"\n" for task in range(ROWS, ROWS + 5))

    digests = digested(slices, workers=2)

    assert [digest.task for digest in digests] == list(range(ROWS))
    assert not any(digest.findings for digest in digests)


def test_a_last_line_that_is_finished_after_it_was_indexed_is_what_it_was(tmp_path: Path) -> None:
    path = write(tmp_path / "rollouts.jsonl", [row(0), b'{"_ng_task_index": 1, "re']).rollouts
    slices = list(stretches_of(path))
    with path.open("ab") as file:
        file.write(b'ward": 1.0}\n')

    digests = digested(slices)

    assert [digest.is_readable for digest in digests] == [True, False]
    assert [finding["locator"]["line"] for finding in digests[1].findings] == [2]


def test_a_killed_worker_costs_no_row(path: Path) -> None:
    killed: list[int] = []

    def slices() -> Iterator[Slice]:
        found = stretches_of(path)
        yield from islice(found, 12)
        for child in map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()):
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                os.kill(child, signal.SIGKILL)
                killed.append(child)
        yield from found

    digests = digested(slices(), workers=2)

    assert killed
    assert [digest.task for digest in digests] == list(range(ROWS))


def test_slices_are_whole_lines_whatever_their_length(tmp_path: Path) -> None:
    text = "y" * (9 << 20)
    artifacts = write(tmp_path / "rollouts.jsonl", [row(0), row(1, response=response(text)), row(2), row(3)])

    stretches = list(stretches_of(artifacts.rollouts))

    assert sum(part.lines for part in stretches) == 4
    assert [part.offset + part.length for part in stretches][-1] == artifacts.rollouts.stat().st_size
    data = artifacts.rollouts.read_bytes()
    assert all(data[part.offset + part.length - 1 : part.offset + part.length] == b"\n" for part in stretches)
    assert isinstance(stretches[0], Stretch)


def test_the_last_line_without_a_newline_counts_when_it_is_whole(tmp_path: Path) -> None:
    artifacts = write(tmp_path / "rollouts.jsonl", [row(0), json.dumps(row(1)).encode()])

    report = check_health(artifacts, workers=1)

    assert issues(report) == {}
    assert [verdict["_ng_task_index"] for verdict in verdicts(report)] == [0, 1]

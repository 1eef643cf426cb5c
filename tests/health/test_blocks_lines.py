"""Files as blocks of lines and as extents, whatever the lengths of lines."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from merge.health.run import check_health
from merge.line_blocks import read_blocks, read_extents
from tests.health.rows import response, row, verdicts, write


@contextmanager
def opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def lines_of(path: Path, offset: int = 0, end: int | None = None) -> list[bytes]:
    with opened(path) as descriptor:
        return [bytes(line) for block in read_blocks(descriptor, offset, end) for line in block.lines()]


@pytest.mark.parametrize(
    "longest", [3, 5_000, 700_000, 9_000_000], ids=["short", "some-KB", "beyond-a-block", "beyond-a-slice"]
)
@pytest.mark.parametrize("ending", [b"\n", b""], ids=["whole", "torn"])
def test_blocks_hold_every_line_once(longest: int, ending: bytes, tmp_path: Path) -> None:
    chance = random.Random(longest)
    lines = [b"x" * chance.choice([0, 1, chance.randrange(longest), 200]) for _ in range(2_000 if longest < 9_999 else 12)]
    lines += [b"y" * longest, b"", b"z"]
    path = tmp_path / "f"
    path.write_bytes(b"\n".join(lines) + ending)

    assert lines_of(path) == lines
    first = len(lines[0]) + 1
    assert lines_of(path, first, first + len(lines[1]) + 1 + len(lines[2]) + 1) == lines[1:3]


def test_lines_end_where_they_are_asked_to_end_or_the_file_does(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"one\ntwo\nth")

    assert lines_of(path, 0, 6) == [b"one", b"tw"]
    assert lines_of(path, 4, 6) == [b"tw"]
    assert lines_of(path, 4, 400) == [b"two", b"th"]
    assert lines_of(path, 400) == []
    (tmp_path / "empty").touch()
    assert lines_of(tmp_path / "empty") == []


def test_extents_are_read_wherever_they_stand(tmp_path: Path) -> None:
    chance = random.Random(7)
    data = chance.randbytes(1 << 21)
    path = tmp_path / "f"
    path.write_bytes(data)
    offsets = sorted(chance.randrange(len(data)) for _ in range(300))
    lengths = [chance.choice([0, 1, 50, 4_000, 300_000]) for _ in offsets]

    with opened(path) as descriptor:
        found = [bytes(extent) for extent in read_extents(descriptor, offsets, lengths)]

    # The last ones reach beyond the end of the file.
    assert found == [data[offset : offset + length] for offset, length in zip(offsets, lengths, strict=True)]
    assert len(found[-1]) <= len(data) - offsets[-1]


def test_a_row_that_cannot_be_read_is_named_by_its_line_in_the_whole_file(tmp_path: Path) -> None:
    chance = random.Random(11)
    good = [row(i, response=response("x" * chance.choice([5, 3_000, 90_000, 400_000]))) for i in range(150)]
    rows = [item for each in good for item in (each, b"\n", b" \r\n", b"half\n")]
    artifacts = write(tmp_path / "rollouts.jsonl", [*rows, b'{"_ng_task_index": 3'])
    assert artifacts.rollouts.stat().st_size > 10 << 20

    report = check_health(artifacts, workers=2)

    named = [verdict["findings"][0]["locator"]["line"] for verdict in verdicts(report) if verdict["verdict"] == "unhealthy"]
    assert named == [*range(4, 601, 4), 601]
    assert len(verdicts(report)) == 301

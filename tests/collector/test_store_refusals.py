"""Files that say what no collector writes are refused in one line, and files that move away stop the collector."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from collector.artifacts import RunArtifacts
from collector.errors import CorruptArtifactError, FencedError, RefusedError
from tests.collector.shards import fill, settings_for, states, write_dataset


@pytest.mark.parametrize(
    ("key", "value"),
    [("offset", 10**30), ("length", 10**25), ("checksum", 10**30), ("attempt_index", -1), ("seq", 10**40), ("offset", -5)],
)
def test_a_number_that_no_collector_writes_is_refused_by_file_and_touches_nothing(tmp_path: Path, key: str, value: int) -> None:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": 0, "grade": 1}])
    settings = settings_for(tmp_path)
    fill(settings)
    artifacts = RunArtifacts(settings.output_jsonl_fpath)
    lines = artifacts.journal.read_bytes().splitlines(keepends=True)
    lines[2] = re.sub(rb'"%s":\d+' % key.encode(), b'"%s":%d' % (key.encode(), value), lines[2])
    artifacts.journal.write_bytes(b"".join(lines))
    before = {path: path.read_bytes() for path in tmp_path.glob("run/rollouts*") if path != artifacts.lock}

    with pytest.raises(CorruptArtifactError, match=r"rollouts(_attempts)?\.jsonl:\d"):
        fill(settings)

    assert {path: path.read_bytes() for path in before} == before


def test_a_manifest_that_is_no_file_is_a_refusal_in_one_line(tmp_path: Path) -> None:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": 0, "grade": 1}])
    settings = settings_for(tmp_path)
    RunArtifacts(settings.output_jsonl_fpath).manifest.mkdir(parents=True)

    with pytest.raises(RefusedError, match=r"rollouts_manifest.json: it cannot be read: Is a directory"):
        fill(settings)


@pytest.mark.parametrize("name", ["rollouts", "failures", "journal"])
def test_a_file_moved_away_under_a_collector_stops_it_and_moved_back_it_is_whole(tmp_path: Path, name: str) -> None:
    """Rows appended to a file that has another name by now would be missing from the run that their events speak of."""
    write_dataset(tmp_path / "tasks.jsonl", [{"n": n, "grade": 1} for n in range(30)])
    settings = settings_for(tmp_path, agent={"delay_s": 0.05}, num_samples_in_parallel=2)
    path: Path = getattr(RunArtifacts(settings.output_jsonl_fpath), name)
    threading.Timer(0.4, lambda: path.rename(path.with_name("elsewhere"))).start()

    with pytest.raises(FencedError, match=re.escape(f"{path}: the file was moved or replaced")):
        fill(settings)
    path.with_name("elsewhere").rename(path)
    fill(settings)

    assert states(settings) == {"measured": 30}

"""One collector at a time writes a shard, whatever happens to its lock file."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from pathlib import Path

import pytest

from collector.artifacts import RunArtifacts
from collector.collect import collect
from collector.errors import FencedError, LockHeldError
from collector.session import JobFacts
from collector.settings import RunSettings
from collector.shard.lock import ShardLock, is_held, read_holder
from collector.shard.lock_backends import hold_for
from collector.stop import StopRequest
from tests.collector.shards import asked, fill, prepare, settings_for, write_dataset


def test_a_second_collector_stops_before_it_touches_anything(tmp_path: Path) -> None:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": 0, "grade": 1}])
    settings = settings_for(tmp_path)
    artifacts = prepare(settings)
    before = {path: path.read_bytes() for path in artifacts.rollouts.parent.iterdir()}

    with (
        ShardLock(artifacts.lock, job_id="812_0"),
        pytest.raises(LockHeldError, match=r"process \d+ on .* \(job 812_0, starting\)"),
    ):
        fill(settings)

    assert {path: path.read_bytes() for path in before} == before
    assert not asked(tmp_path)


def test_the_lock_file_names_its_holder_and_a_released_lock_is_free(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"

    with ShardLock(path, job_id="7") as lock:
        lock.describe_holder(3)
        holder, held = read_holder(path), is_held(path)

    assert holder is not None
    assert (holder.pid, holder.job_id, holder.session, held) == (os.getpid(), "7", 3, True)
    assert not is_held(path)


def test_who_only_asks_for_the_lock_sends_no_collector_away(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    path.touch()
    asking = hold_for(path)
    assert asking.acquire()
    end = threading.Timer(0.2, asking.release)
    end.start()
    try:
        with ShardLock(path) as lock:
            assert lock.is_still_ours()
    finally:
        end.join()


def replace_lock(artifacts: RunArtifacts) -> None:
    artifacts.lock.unlink()
    artifacts.lock.touch()


def remove_lock(artifacts: RunArtifacts) -> None:
    artifacts.lock.unlink()


def move_directory(artifacts: RunArtifacts) -> None:
    artifacts.lock.parent.rename(artifacts.lock.parent.with_name("moved"))


def begin_a_successor(artifacts: RunArtifacts) -> None:
    line = b'{"event":"session_started","reason":"resume","host":"n2","pid":1,"schema_version":1,"run_id":"%s","session":1,"seq":0,"at":""}\n'
    with artifacts.journal.open("ab") as journal:
        journal.write(line % (b"0" * 32))


@pytest.mark.parametrize("harm", [replace_lock, remove_lock, move_directory, begin_a_successor])
def test_a_collector_that_loses_its_shard_stops_without_writing(tmp_path: Path, harm: object) -> None:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": n, "grade": 1} for n in range(50)])
    settings = settings_for(tmp_path, num_samples_in_parallel=1, agent={"delay_s": 0.02})
    sizes: list[int] = []

    async def run() -> None:
        artifacts = prepare(settings)
        with ShardLock(artifacts.lock) as lock:
            work = asyncio.create_task(collect(settings, artifacts, lock, job=JobFacts(), stop=StopRequest()))
            while not artifacts.rollouts.stat().st_size:
                await asyncio.sleep(0.005)
            harm(artifacts)  # type: ignore[operator]
            sizes.append(rows_anywhere(settings))
            await work

    with pytest.raises(FencedError):
        asyncio.run(run())

    # One commit may have been under way when the harm was done.
    assert rows_anywhere(settings) - sizes[0] <= 1
    assert sum(asked(tmp_path).values()) < 50


def rows_anywhere(settings: RunSettings) -> int:
    here = settings.output_jsonl_fpath
    moved = here.parent.with_name("moved") / here.name
    return (here if here.exists() else moved).read_bytes().count(b"\n")


def test_a_moved_and_remade_directory_does_not_receive_rows_of_the_old_run(tmp_path: Path) -> None:
    write_dataset(tmp_path / "tasks.jsonl", [{"n": 0, "grade": 1}])
    settings = settings_for(tmp_path)
    fill(settings)
    shutil.move(settings.output_jsonl_fpath.parent, tmp_path / "kept")

    fill(settings)

    assert asked(tmp_path) == {"0-0": 2}

"""A merge shared out among processes: the same bytes, the same errors, and nobody left behind."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from merge.command import merge_paths
from merge.fan_out import run_tasks, share_out
from tests.merge import jobs
from tests.merge.build import Plan, answered, failed, fill_all, plan

HAS_SEVERAL = len(os.sched_getaffinity(0)) > 1


def filled(directory: Path) -> Plan:
    made = plan(directory, shards=3, tasks=20, repeats=3, round_robin=True)
    fill_all(made, lambda task, repeat: failed() if task == 7 else answered(float(repeat % 2), text=f"answer {task} " * 20))
    return made


def shared_out(made: Plan, target: Path, *words: str) -> dict:
    command = [sys.executable, "-m", "tests.merge.shared_out", str(made.directory), str(target), *words]
    done = subprocess.run(command, cwd=jobs.ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def published(target: Path) -> dict[str, bytes]:
    """What was published, but for answers' marks that differ from process to process: none are written."""
    return {path.name: path.read_bytes() for path in target.parent.iterdir() if path.suffix in {".json", ".jsonl"}}


def test_a_merge_that_is_shared_out_publishes_the_same_bytes(tmp_path: Path) -> None:
    made = filled(tmp_path / "b")
    several, alone = tmp_path / "several" / "rollouts.jsonl", tmp_path / "alone" / "rollouts.jsonl"

    told = shared_out(made, several)
    merge_paths([made.directory], alone)

    assert told["raised"] is None
    assert (told["others"] > 0) is (told["with figures"] > 0) is HAS_SEVERAL
    assert published(several) == published(alone)


def test_a_damaged_row_that_another_process_finds_is_named_and_the_old_target_stays(tmp_path: Path) -> None:
    made = filled(tmp_path / "b")
    made.merged.rollouts.write_bytes(b"old\n")
    data = made.shards[1].rollouts.read_bytes()
    made.shards[1].rollouts.write_bytes(data.replace(b"answer 13", b"answer 14", 1))

    kind, message = shared_out(made, made.merged.rollouts)["raised"]

    assert kind == "CorruptArtifactError"
    assert str(made.shards[1].rollouts) in message
    assert "is not the one recorded" in message
    assert made.merged.rollouts.read_bytes() == b"old\n"
    assert not list(made.directory.glob(".*.tmp"))


def test_a_disk_that_is_full_for_another_process_is_told_in_one_line(tmp_path: Path) -> None:
    made = filled(tmp_path / "b")

    kind, message = shared_out(made, made.merged.rollouts, "full")["raised"]

    assert kind == "StorageError"
    assert "No space left on device" in message
    assert not made.merged.rollouts.exists()
    assert not list(made.directory.glob(".*.tmp"))


def test_a_merge_whose_helpers_are_killed_publishes_the_same_bytes(tmp_path: Path) -> None:
    made = filled(tmp_path / "b")
    several, alone = tmp_path / "several" / "rollouts.jsonl", tmp_path / "alone" / "rollouts.jsonl"

    told = shared_out(made, several, "killed")
    merge_paths([made.directory], alone)

    assert told["raised"] is None
    assert (told["others"] > 0) is HAS_SEVERAL
    assert published(several) == published(alone)


def pid_of(number: int) -> tuple[int, int]:
    return number, os.getpid()


@pytest.mark.parametrize("method", ["fork", "afresh"])
def test_a_worker_that_is_killed_in_the_middle_of_a_result_costs_only_time(method: str) -> None:
    command = [sys.executable, "-m", "tests.merge.torn_result", method]
    done = subprocess.run(command, cwd=jobs.ROOT, capture_output=True, text=True, timeout=50, check=True)

    told = json.loads(done.stdout)
    assert told["right"] == [True] * 12
    assert told["left"] == [0, 0, 0]
    assert "goes on in one process: a process that helped has ended" in done.stderr


@pytest.mark.parametrize("is_worth_it", [False, True], ids=["too-little", "beside-a-thread"])
def test_what_cannot_be_shared_out_is_done_here_in_order(is_worth_it: bool) -> None:
    gate = threading.Event()
    other = threading.Thread(target=gate.wait)
    other.start()
    try:
        found = list(run_tasks([partial(pid_of, number) for number in range(20)], is_worth_it=is_worth_it))
    finally:
        gate.set()
        other.join()

    assert found == [(number, os.getpid()) for number in range(20)]


HANGING = """
import os, time
from merge.fan_out import run_tasks
def hang():
    print(os.getpid(), flush=True)
    time.sleep(600)
list(run_tasks([hang] * 2, is_worth_it=True))
"""


def test_processes_that_help_die_with_the_merge(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HANGING], cwd=jobs.ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)

    stat = Path(f"/proc/{child}/stat")
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)


UNCAUGHT = """
from merge.fan_out import share_out
found = share_out(abs, range(-9, 0), alone=2, workers=2)
next(found)
raise ValueError("of whoever wanted the results")
"""


def test_a_program_that_ends_with_an_error_waits_for_no_helper() -> None:
    """Its traceback kept the results that nobody asked for any more, and the helpers waited for work for ever."""
    done = subprocess.run(
        [sys.executable, "-c", UNCAUGHT], cwd=jobs.ROOT, capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: of whoever wanted the results\n")


FORKLESS = """
import os, sys
from merge.fan_out import share_out
fork, allowed = os.fork, [1]
def refuse():
    if not allowed:
        raise OSError(11, "Resource temporarily unavailable")
    allowed.pop()
    return fork()
os.fork = refuse
print(list(share_out(abs, range(-9, 0), alone=2, workers=2)))
"""


def test_what_cannot_fork_twice_goes_on_alone_and_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKLESS], cwd=jobs.ROOT, capture_output=True, text=True, timeout=60, check=True
    )

    assert json.loads(done.stdout) == list(range(9, 0, -1))
    assert "goes on in one process: [Errno 11] Resource temporarily unavailable" in done.stderr


def absolute(number: int) -> tuple[int, bool]:
    return abs(number), multiprocessing.parent_process() is not None


def test_beside_a_thread_workers_are_started_afresh_when_the_work_allows() -> None:
    gate = threading.Event()
    other = threading.Thread(target=gate.wait)
    other.start()
    try:
        found = list(share_out(absolute, range(-3, 0), alone=2, workers=2, may_start_afresh=True))
    finally:
        gate.set()
        other.join()

    assert found == [(3, True), (2, True), (1, True)]

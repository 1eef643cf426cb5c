"""System calls that fail: the session ends with an error, and the next one finds every record whole."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.collector.shards import asked, fill, rollout_ids, settings_for, states, write_dataset
from tests.support import testkit
from tests.support.requirements import require

TASKS = [{"n": n, "grade": n % 2} for n in range(6)] + [{"n": 6, "grade": 1, "fail": 1}]


@pytest.fixture(autouse=True)
def strace() -> None:
    require("injecting faults into system calls", [] if shutil.which("strace") else ["strace"])


def run_with_fault(directory: Path, call: str, fault: str, paths: list[str]) -> subprocess.CompletedProcess[str]:
    only = [part for name in paths for part in ("-P", str(directory / "run" / name))]
    trace = ["strace", "-f", "-qq", "-o", "/dev/null", *only, "-e", f"trace={call}", "-e", f"inject={call}:{fault}"]
    command = [*trace, sys.executable, "-m", "tests.collector.session_program", str(directory)]
    return subprocess.run(
        command, env=testkit.environment(), cwd=testkit.ROOT, capture_output=True, text=True, check=False, timeout=50
    )


@pytest.mark.parametrize("when", [1, 2, 3])
@pytest.mark.parametrize(
    ("call", "error"), [pytest.param("write", "ENOSPC", id="disk-full"), pytest.param("fdatasync", "EIO", id="sync-fails")]
)
@pytest.mark.parametrize("name", ["rollouts.jsonl", "rollouts_attempts.jsonl"])
def test_a_failing_disk_ends_the_session_and_costs_no_record(
    tmp_path: Path, name: str, call: str, error: str, when: int
) -> None:
    write_dataset(tmp_path / "tasks.jsonl", TASKS)
    settings = settings_for(tmp_path, num_samples_in_parallel=2, retry={"max_attempts": 30})

    failed = run_with_fault(tmp_path, call, f"error={error}:when={when}", [name])
    before = sum(asked(tmp_path).values())
    fill(settings)

    assert failed.returncode != 0
    assert {"ENOSPC": "No space left", "EIO": "Input/output error"}[error] in failed.stderr
    assert sorted(rollout_ids(settings.output_jsonl_fpath)) == [f"{n}-0" for n in range(7)]
    assert states(settings) == {"measured": 7}
    assert sum(asked(tmp_path).values()) <= before + 8


def test_a_failure_row_that_a_disk_does_not_give_ends_the_session_in_words(tmp_path: Path) -> None:
    """Before a retry its last failure is read: whether it left something to use."""
    write_dataset(tmp_path / "tasks.jsonl", TASKS)
    settings = settings_for(tmp_path, num_samples_in_parallel=2, retry={"max_attempts": 30})

    failed = run_with_fault(tmp_path, "pread64", "error=EIO:when=1", ["rollouts_failures.jsonl"])
    fill(settings)

    assert failed.returncode != 0
    assert "rollouts_failures.jsonl: it cannot be read: Input/output error." in failed.stderr
    assert "Traceback" not in failed.stderr
    assert states(settings) == {"measured": 7}


@pytest.mark.parametrize(("call", "when"), [("link", 1), ("link", 2), ("rename", 1), ("rename", 2)])
def test_a_preparation_whose_last_step_fails_leaves_nothing_that_a_second_try_stumbles_over(
    tmp_path: Path, call: str, when: int
) -> None:
    write_dataset(tmp_path / "tasks.jsonl", TASKS)

    failed = run_with_fault(tmp_path, call, f"error=EIO:when={when}", [])
    fill(settings_for(tmp_path, num_samples_in_parallel=2, retry={"max_attempts": 30}))

    assert failed.returncode != 0
    assert not list((tmp_path / "run").glob(".*.tmp"))


def test_a_file_system_without_hard_links_can_hold_a_run(tmp_path: Path) -> None:
    write_dataset(tmp_path / "tasks.jsonl", TASKS)
    settings = settings_for(tmp_path, num_samples_in_parallel=2, retry={"max_attempts": 30})

    done = run_with_fault(tmp_path, "link", "error=EPERM", [])

    assert done.returncode == 0, done.stderr
    assert states(settings) == {"measured": 7}


@pytest.mark.parametrize("error", ["ENOLCK", "ENOSYS", "EOPNOTSUPP"])
def test_a_file_system_without_locks_is_an_explained_refusal_before_the_first_write(tmp_path: Path, error: str) -> None:
    write_dataset(tmp_path / "tasks.jsonl", TASKS)

    refused = run_with_fault(tmp_path, "flock", f"error={error}", [])

    assert refused.returncode == 5
    assert "this file system does not lock files" in refused.stderr
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["rollouts.jsonl.lock"]
    assert not asked(tmp_path)


def test_a_lock_that_cannot_be_released_is_one_line_and_everything_is_recorded(tmp_path: Path) -> None:
    write_dataset(tmp_path / "tasks.jsonl", TASKS)

    failed = run_with_fault(tmp_path, "flock", "error=EIO:when=2", [])

    assert failed.returncode == 5, failed.stderr
    assert "rollouts.jsonl.lock: the lock cannot be released: Input/output error" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert states(settings_for(tmp_path, retry={"max_attempts": 30})) == {"measured": 7}

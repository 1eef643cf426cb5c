"""Cleaning beside other commands: one that only looks is no collector, one at work is passed over, what is gone stays gone."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from collector.errors import NotFoundError, RefusedError
from collector.shard.lock import ShardLock
from orchestrate.operate.clean import plan_removal, remove
from orchestrate.runs.directory import RunDir, read_plan
from orchestrate.runs.lock import submit_lock
from tests.orchestrate.project import Project
from tests.support import testkit

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def finished(project: Project) -> Project:
    testkit.install()
    project.benchmark("math", tasks=2)
    project.submit("--wait", timeout_s=100)
    return project


def first_lock(run: RunDir) -> Path:
    return run.shard(read_plan(run).benchmarks[0], 0).lock


def test_a_lock_that_somebody_only_looks_at_is_no_collector_s(finished: Project) -> None:
    run = RunDir(finished.run_dir)
    looking = ShardLock(first_lock(run))
    looking.__enter__()
    over = threading.Timer(0.1, looking.__exit__, (None, None, None))
    over.start()

    removal = plan_removal(run)

    over.join()
    assert removal.paths
    with ShardLock(first_lock(run)), pytest.raises(RefusedError, match="a collector holds math shard 0"):
        plan_removal(run)


def test_a_run_that_another_command_works_on_is_passed_over_and_the_others_are_cleaned(finished: Project) -> None:
    first = RunDir(finished.run_dir)
    finished.config["job"]["name"] = "second"
    finished.submit("--wait", timeout_s=100)

    with submit_lock(first):
        done = finished.gym("clean", "--older-than", "0s")
        named = finished.gym("clean", first.root.name)

    assert (done.returncode, named.returncode) == (0, 4)
    assert f"left alone: {first.submit_lock}: another command is at work on this run" in done.stderr
    assert list((first.root / "math" / "logs").glob("*.log"))
    assert not list((finished.runs / "second" / "math" / "logs").glob("*.log"))
    assert str(first.root) not in done.stdout


def test_a_run_that_was_written_to_by_a_clock_ahead_is_cleaned_when_it_is_named(finished: Project) -> None:
    ahead = time.time() + 60
    os.utime(finished.run_dir / "plan.json", (ahead, ahead))

    done = finished.gym("clean", finished.run_dir.name)

    assert "removed" in done.stdout


def test_a_run_that_another_command_removed_is_not_made_again(finished: Project) -> None:
    run = RunDir(finished.run_dir)
    removal = plan_removal(run, everything=True)
    shutil.rmtree(run.root)

    with pytest.raises(NotFoundError):
        remove(removal)

    assert not run.root.exists()

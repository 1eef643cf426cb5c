"""Jobs of one machine beyond ``max_concurrent``: they wait, and are shown to wait wherever a job's state is shown."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path

import pytest

from orchestrate.jobs.processes import ProcessTable, local_job_id
from orchestrate.jobs.slots import local_slot
from orchestrate.runs.directory import RunDir
from tests.orchestrate.project import Project
from tests.support.processes import wait_for

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """One job at a time."""
    return Project(tmp_path / "user", {"type": "local", "max_concurrent": 1})


def states(project: Project) -> Counter[str]:
    return Counter(shard["job_state"] for shard in project.status()["benchmarks"][0]["shards"])


def test_a_job_without_a_slot_is_pending_until_it_has_one(project: Project) -> None:
    project.benchmark("math", tasks=3, shards=3, marks="[[delay: 60]]")
    project.submit()
    wait_for(project.requests, 60)

    shown = project.gym("status").stdout
    by_state = states(project)
    cancelled = project.gym("cancel")

    assert by_state == {"RUNNING": 1, "PENDING": 2}
    assert "2 pending, 1 running" in shown
    assert shown.count("waits for a slot (max_concurrent)") == 2
    assert "3 jobs ended" in cancelled.stdout
    assert states(project) == {"GONE": 3}


def test_a_watch_shows_the_waiting_jobs_and_then_their_end(project: Project) -> None:
    project.benchmark("math", tasks=3, shards=3, marks="[[delay: 2]]")
    project.submit()

    watched = project.gym("watch", "--every", "1", timeout_s=100)

    assert watched.returncode == 0, watched.stdout + watched.stderr
    assert " pending" in watched.stdout.splitlines()[3]
    assert "3 final" in watched.stdout


def test_a_job_that_publishes_after_its_slot_was_freed_is_not_said_to_wait(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    own = local_job_id(os.getpid())

    def state() -> str:
        return ProcessTable(run).ask({"token": [own]})[own].state

    async def have_a_slot() -> None:
        async with local_slot(run, 1):
            assert state() == "RUNNING"

    before = state()
    asyncio.run(have_a_slot())

    assert (before, state()) == ("PENDING", "RUNNING")

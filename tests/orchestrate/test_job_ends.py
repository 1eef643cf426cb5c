"""How a job on its shard ends: signals are heeded, the first error is the one told, and the outcome goes before the exports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.orchestrate.project import Project
from tests.support.processes import wait_for

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "user", {"type": "local", "max_concurrent": 1})


def job_states(project: Project) -> set[str]:
    return {shard["job_state"] for shard in project.status()["benchmarks"][0]["shards"]}


def python(project: Project, code: str) -> subprocess.CompletedProcess[str]:
    """Run code in the project's folder, as a job would."""
    return subprocess.run(
        [sys.executable, "-c", code], cwd=project.root, env=project.environment(), capture_output=True, text=True, check=False
    )


def test_a_signal_that_comes_while_the_services_stop_is_heeded(project: Project) -> None:
    stubborn = project.service()
    stubborn["command"] = ["bash", "-c", 'trap "sleep 4" TERM; "$@" & wait', "-", *stubborn["command"]]
    project.config["services"] = {"policy": project.service(delay=0.1, exit_after=4), "other": stubborn | {"stop_grace_s": 5}}
    project.benchmark("math", tasks=10, num_samples_in_parallel=1)
    project.submit()
    pid = project.status()["benchmarks"][0]["shards"][0]["job_id"].split(":")[1]
    wait_for(lambda: any("service_died" in path.read_text() for path in project.run_dir.rglob("*_attempts.jsonl")), 60)

    os.kill(int(pid), signal.SIGTERM)

    wait_for(lambda: job_states(project) == {"GONE"}, 60)
    assert "unfinished (terminated)" in project.logs()
    assert "(restart" not in project.logs()

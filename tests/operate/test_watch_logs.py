"""Following a run on this machine: watch ends when it does, and logs are found by shard, service and failure."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from tests.orchestrate.project import Project
from tests.support.processes import heed_interrupts, wait_for

pytestmark = pytest.mark.timeout(120)


def test_watch_ends_with_the_run_and_shows_its_score(project: Project) -> None:
    project.config["services"]["policy"] = project.service(delay=0.3)
    project.benchmark("math", tasks=8, shards=2, num_samples_in_parallel=1)
    project.submit()

    done = project.gym("watch", "--every", "1", timeout_s=100)

    assert done.returncode == 0, done.stderr
    assert "never_dispatched" in done.stdout
    assert "0.75 (8/8)" in done.stdout


def test_watch_of_a_run_that_ended_unfinished_says_so(project: Project) -> None:
    project.config["services"]["policy"]["command"] = ["bash", "-c", "exit 3"]
    project.benchmark("math", tasks=4)
    project.submit()

    done = project.gym("watch", "--every", "1", timeout_s=100)

    assert done.returncode == 6
    assert "0/4" in done.stdout


def test_an_interrupted_watch_leaves_the_jobs_alone(project: Project) -> None:
    project.config["services"]["policy"] = project.service(delay=0.3)
    project.benchmark("math", tasks=8, num_samples_in_parallel=1)
    project.submit()
    watching = subprocess.Popen(
        [sys.executable, "-m", "orchestrate.cli.main", "eval", "watch"],
        cwd=project.root, env=project.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=heed_interrupts,
    )  # fmt: skip
    assert watching.stdout is not None
    watching.stdout.readline()

    watching.send_signal(signal.SIGINT)
    _, said = watching.communicate(timeout=20)

    assert watching.returncode == 130
    assert "The jobs go on" in said
    assert project.gym("watch", "--every", "1", timeout_s=100).returncode == 0


def test_logs_are_those_of_the_shard_that_was_asked_for(project: Project) -> None:
    project.benchmark("math", tasks=4, shards=2)
    project.submit("--wait", timeout_s=100)

    done = project.gym("logs", "--shard", "1")

    assert done.returncode == 0, done.stderr
    assert "math shard 1 of 2: 2 of 2 rollouts completed" in done.stdout
    assert "shard 0 of 2" not in done.stdout


def test_the_logs_of_a_service_are_found_by_its_name(project: Project) -> None:
    project.config["services"]["policy"]["command"] = ["bash", "-c", "echo out of memory; exit 3"]
    project.benchmark("math", tasks=2)
    project.submit()
    wait_for(lambda: "ended with exit code 3" in project.logs(), 60)

    served = project.gym("logs", "--service", "policy")
    unknown = project.gym("logs", "--service", "judge")

    assert "out of memory" in served.stdout
    assert unknown.returncode == 3
    assert "They start: policy" in unknown.stderr


def test_failed_shows_only_shards_that_nobody_works_on(project: Project) -> None:
    project.benchmark("math", tasks=4, shards=2)
    project.submit("--wait", timeout_s=100)
    nothing = project.gym("logs", "--failed")
    journal = project.run_dir / "math" / "shards" / "0-of-2" / "rollouts_attempts.jsonl"
    journal.write_bytes(b"garbage\n" + journal.read_bytes())

    broken = project.gym("logs", "--failed")

    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "No shard is unfinished without a live job" in nothing.stderr
    assert "math shard 0:" in broken.stdout
    assert "math shard 1:" not in broken.stdout


def test_followed_logs_end_with_the_jobs(project: Project) -> None:
    project.config["services"]["policy"] = project.service(delay=1)
    project.benchmark("math", tasks=12, shards=2, num_samples_in_parallel=1)
    project.submit()

    started = time.monotonic()
    done = project.gym("logs", "--follow", "-n", "100", timeout_s=100)

    assert done.returncode == 0, done.stderr
    assert "\nmath shard 0: " in done.stdout
    assert done.stdout.count("6 of 6 rollouts completed") == 2
    assert time.monotonic() - started < 60

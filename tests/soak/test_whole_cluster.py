"""Forty-eight shards on a real cluster while everything goes wrong at once: nothing is lost, doubled, or asked without record."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from collector.settings import RetrySettings
from collector.shard.store import RolloutStore
from orchestrate.runs.directory import RunDir, read_plan
from tests.orchestrate.project import Project
from tests.support.cluster import SlurmCluster

pytestmark = [pytest.mark.soak, pytest.mark.slurm, pytest.mark.timeout(1500)]

BENCHMARKS, SHARDS, TASKS = 6, 8, 40


class Trouble:
    """What is done to the cluster, and how often."""

    def __init__(self, project: Project, slurm: SlurmCluster, seed: int) -> None:
        self.project = project
        self.slurm = slurm
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()

    def preempt(self) -> None:
        with self.slurm.preempt(self.random.randint(1, 3)):
            time.sleep(self.random.uniform(1, 4))
        self.counts["preemptions"] += 1

    def lose_node(self) -> None:
        node = self.random.choice(["n1", "n2", "n3", "n4"])
        self.slurm.set_node(node, "down")
        time.sleep(4)
        self.slurm.set_node(node, "resume")
        self.counts["nodes set down and up"] += 1

    def kill_service(self) -> None:
        mark = f"--log={self.project.requests_log}".encode()
        for directory in self.random.sample(sorted(Path("/proc").glob("[0-9]*")), k=len(list(Path("/proc").glob("[0-9]*")))):
            try:
                words = (directory / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if mark in words and b"-I" not in words:
                os.kill(int(directory.name), signal.SIGKILL)
                self.counts["services killed"] += 1
                return

    def cancel_shard(self) -> None:
        running = [job.job_id for job in self.slurm.squeue("-r", "-t", "running", "-p", "batch") if "_" in job.job_id]
        if running:
            self.slurm.run("scancel", self.random.choice(running))
            self.counts["shards cancelled"] += 1

    def restart_controller(self) -> None:
        self.slurm.stop_controller()
        time.sleep(2)
        self.slurm.start_controller()
        self.counts["restarts of the controller"] += 1

    def release(self) -> None:
        """Requeued jobs are held back for two minutes; nobody here has that time."""
        for job in self.slurm.squeue("-r", "-t", "pending", "-p", "batch"):
            if job.reason == "BeginTime" and self.slurm.let_start(job.job_id):
                self.counts["requeues"] += 1


def attempts(run: RunDir) -> Counter[str]:
    """Dispatched attempts of every rollout, by the task's mark in its prompt."""
    found: Counter[str] = Counter()
    for benchmark in read_plan(run).benchmarks:
        for artifacts in run.shards(benchmark):
            with RolloutStore.read(artifacts) as store:
                for index in range(len(store.inventory)):
                    found[f"{benchmark.name}-{store.inventory.task(index)}"] += store.history.latest[index] + 1
                assert store.coverage(RetrySettings()).complete
    return found


def is_over(project: Project) -> bool:
    return all(
        benchmark["merged"] and all(shard["final"] for shard in benchmark["shards"])
        for benchmark in project.status()["benchmarks"]
    )


@pytest.mark.parametrize("accounting", [False, True], ids=["without-accounting", "with-accounting"])
def test_a_run_survives_everything_at_once(
    tmp_path: Path, request: pytest.FixtureRequest, accounting: bool, record_property: Any
) -> None:
    slurm: SlurmCluster = request.getfixturevalue("slurm_accounting" if accounting else "slurm")
    project = Project(tmp_path / "user", {"type": "slurm", "walltime": "20m", "mem": "300M", "max_concurrent": 3})
    project.config["services"]["policy"] = project.service(delay=0.5)
    project.config["export"] = {"atif": {"agent_version": "1.0.0"}}
    for number in range(BENCHMARKS):
        project.benchmark(f"b{number}", tasks=TASKS, shards=SHARDS, num_samples_in_parallel=1)
    begun = time.monotonic()
    project.submit(timeout_s=120)
    trouble = Trouble(project, slurm, seed=5)
    plans = [
        trouble.preempt, trouble.kill_service, trouble.lose_node, trouble.preempt, trouble.cancel_shard,
        trouble.restart_controller, trouble.preempt, trouble.kill_service, trouble.preempt,
    ]  # fmt: skip
    for act in plans:
        slurm.wait_for(lambda: len(slurm.squeue("-r", "-t", "running", "-p", "batch")) >= 4 or is_over(project), 120)
        act()
        trouble.release()

    submits = 0
    while not is_over(project):
        assert time.monotonic() - begun < 1300, project.status()
        trouble.release()
        if not slurm.squeue("-r", "-p", "batch"):
            project.submit(timeout_s=120)
            submits += 1
        time.sleep(2)
    project.submit("--wait", timeout_s=300)
    seconds = time.monotonic() - begun

    run = RunDir(project.run_dir)
    asked, recorded = Counter(str(entry["task"]) for entry in project.requests()), attempts(run)
    assert set(asked) == set(recorded)
    assert {task: count for task, count in asked.items() if count > recorded[task]} == {}
    for benchmark in read_plan(run).benchmarks:
        merged = run.merged(benchmark)
        rows = [json.loads(line) for line in merged.rollouts.read_text().splitlines()]
        assert sorted(row["_ng_task_index"] for row in rows) == list(range(TASKS))
        assert "partial" not in json.loads(merged.receipt.read_text())
        events = [json.loads(line)["event"] for line in merged.exports.read_text().splitlines()]
        assert events.count("succeeded") == 1
    figures = {
        "rollouts": BENCHMARKS * TASKS, "requests": asked.total(), "attempts": recorded.total(), "seconds": round(seconds),
        "further submits": submits, **trouble.counts,
    }  # fmt: skip
    record_property("figures", figures)
    print(f"\nsoak figures: {json.dumps(figures)}")

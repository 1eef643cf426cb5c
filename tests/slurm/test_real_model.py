"""The example benchmarks with the real small model on a real Slurm: a preempted run gives what an undisturbed one gives."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.orchestrate.project import Project
from tests.support.cluster import SlurmCluster
from tests.support.requirements import require
from tests.support.small_model import missing_packages

pytestmark = [pytest.mark.slurm, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).resolve().parents[2]
#: Rows of each benchmark: enough that a job is in flight when it is preempted, few enough for two cores.
LIMIT = 10


@pytest.fixture(autouse=True)
def model() -> None:
    require("the real model", missing_packages())


def project_at(root: Path) -> Project:
    """The quickstart's benchmarks on the cluster: 2 shards, 2 repeats, one request at a time, temperature 0."""
    project = Project(root, {"type": "slurm", "partition": "batch", "walltime": "20m", "mem": "900M"})
    example = yaml.safe_load((ROOT / "examples" / "quickstart.yaml").read_text())
    program = str(ROOT / "examples" / "serve_model.py")
    service = example["services"]["model"]
    service["command"] = [sys.executable, program, "--port", "{port}", "--threads", "1"]
    project.config["services"] = {"model": service}
    project.config["driver"] = example["driver"]
    project.config["export"] = example["export"]
    for benchmark in project.config["driver"]["benchmarks"].values():
        run = benchmark["run"]
        run["input_jsonl_fpath"] = str(ROOT / run["input_jsonl_fpath"])
        run |= {"limit": LIMIT, "num_repeats": 2, "num_samples_in_parallel": 1}
        # The server's cache of earlier prompts changes sums in the last digit, and so, rarely, an answer.
        run["agent"] = {"type": "openai_chat", "extra_body": {"cache_prompt": False}}
        benchmark["shards"] = 2
    return project


def journal(shard: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (shard / "rollouts_attempts.jsonl").read_text().splitlines()]


def results(project: Project, benchmark: str) -> list[tuple[int, int, str, float]]:
    """(task, repeat, answer, reward) of the merged file, in its order."""
    found: list[tuple[int, int, str, float]] = []
    for line in (project.run_dir / benchmark / "rollouts.jsonl").read_text().splitlines():
        row = json.loads(line)
        text = row["response"]["output"][-1]["content"][0]["text"]
        found.append((row["_ng_task_index"], row["_ng_rollout_index"], text, row["reward"]))
    return found


def asked_after_recorded(shard: Path) -> list[str]:
    """Rollouts dispatched again though an earlier attempt had its result."""
    done: set[str] = set()
    again: list[str] = []
    for event in journal(shard):
        if event["event"] == "success":
            done.add(event["rollout_id"])
        elif event["event"] == "dispatched" and event["rollout_id"] in done:
            again.append(event["rollout_id"])
    return again


def all_final(project: Project) -> bool:
    return all(shard["final"] for benchmark in project.status()["benchmarks"] for shard in benchmark["shards"])


def test_a_preempted_run_gives_the_answers_of_an_undisturbed_one(tmp_path: Path, slurm: SlurmCluster) -> None:
    calm = project_at(tmp_path / "calm")
    calm.submit("--wait", timeout_s=180)
    disturbed = project_at(tmp_path / "disturbed")
    disturbed.submit()
    shard = disturbed.run_dir / "arithmetic" / "shards" / "0-of-2"
    slurm.wait_for(lambda: sum(event["event"] == "success" for event in journal(shard)) >= 2, 120)

    job = disturbed.status()["benchmarks"][0]["shards"][0]["job_id"]
    with slurm.preempt(4):
        slurm.wait_for(lambda: slurm.state(job) == "PENDING", 60)
        during = disturbed.status()
    for shards in (benchmark["shards"] for benchmark in during["benchmarks"]):
        for preempted in shards:
            if preempted["job_state"] == "PENDING":
                slurm.start_now(preempted["job_id"])
    slurm.wait_for(lambda: all_final(disturbed), 180)
    slurm.wait_for(lambda: len(list(disturbed.run_dir.glob("*/rollouts_atif/manifest.jsonl"))) == 2, 60)

    after = disturbed.status()
    for benchmark in after["benchmarks"]:
        name = benchmark["name"]
        merged = results(disturbed, name)
        assert (benchmark["measured"], benchmark["expected"]) == (2 * LIMIT, 2 * LIMIT)
        assert merged == results(calm, name)
        assert [row[:2] for row in merged] == [(task, repeat) for task in range(LIMIT) for repeat in range(2)]
        # The same figures everywhere: status, the coverage file, the metrics, and a recount of the rows.
        mean = sum(reward for *_, reward in merged) / len(merged)
        coverage = json.loads((disturbed.run_dir / name / "rollouts_coverage.json").read_text())
        metrics = json.loads((disturbed.run_dir / name / "rollouts_aggregate_metrics.json").read_text())
        assert (benchmark["mean_reward"], coverage["mean_reward"], metrics[0]["agent_metrics"]["mean/reward"]) == (
            mean,
            mean,
            mean,
        )
        assert (coverage["expected"], coverage["measured"], coverage["complete"]) == (2 * LIMIT, 2 * LIMIT, True)
        assert len(list((disturbed.run_dir / name / "rollouts_atif").glob("*-*.json"))) == 2 * LIMIT
    sessions = [shard["sessions"] for benchmark in after["benchmarks"] for shard in benchmark["shards"]]
    assert max(sessions) == 2
    assert [asked_after_recorded(path) for path in disturbed.run_dir.glob("*/shards/*")] == [[], [], [], []]
    assert any(shard["job_state"] == "PENDING" for benchmark in during["benchmarks"] for shard in benchmark["shards"])


def test_the_quickstart_ends_with_a_table_and_the_paths(tmp_path: Path) -> None:
    """The main job of the README on one machine, with fewer rows."""
    command = [sys.executable, "-m", "orchestrate.cli.main", "eval", "submit", "examples/quickstart.yaml", "--wait"]
    changes = [f"job.output_path={tmp_path}/runs", "services.model.command.0=" + sys.executable]
    limits = [f"+driver.benchmarks.{name}.run.limit=6" for name in ("arithmetic", "multiple_choice")]

    done = subprocess.run([*command, *changes, *limits], cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)

    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("arithmetic", "multiple_choice"):
        assert f"{name} " in done.stdout
        assert f"/{name}/rollouts.jsonl" in done.stdout
        assert f"/{name}/rollouts_coverage.json" in done.stdout
        assert f"/{name}/rollouts_atif" in done.stdout
    assert done.stdout.count("(12/12)") == 2

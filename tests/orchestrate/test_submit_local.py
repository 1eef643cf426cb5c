"""The whole way on one machine: a YAML, processes that outlive the command, merged results and their scores."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from collector.shard.lock import ShardLock
from tests.orchestrate.project import Project, tree
from tests.support.processes import heed_interrupts, wait_for

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "user", {"type": "local", "max_concurrent": 2})


def is_final(project: Project) -> bool:
    return all(shard["final"] for benchmark in project.status()["benchmarks"] for shard in benchmark["shards"])


def test_two_benchmarks_of_two_shards_become_two_scores(project: Project) -> None:
    project.benchmark("math", tasks=8, shards=2)
    project.benchmark("a b/c", tasks=4, shards=2, num_repeats=2)

    said = project.submit("--wait", timeout_s=100)

    assert "0.75 (8/8)" in said
    assert Counter(Counter(request["task"] for request in project.requests()).values()) == {1: 8, 2: 4}
    merged = [json.loads(line) for line in (project.run_dir / "a+20b+2Fc" / "rollouts.jsonl").read_text().splitlines()]
    assert [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in merged] == [(t, r) for t in range(4) for r in range(2)]
    coverage = json.loads((project.run_dir / "math" / "rollouts_coverage.json").read_text())
    assert (coverage["measured"], coverage["expected"], coverage["mean_reward"]) == (8, 8, 0.75)
    record = json.loads((project.run_dir / "gym-job.json").read_text())
    assert [job["benchmark"] for job in record["benchmarks"]] == ["math", "a b/c"]
    assert record["schema_version"] == 1


def test_repeating_the_command_finds_the_run_and_submits_nothing(project: Project) -> None:
    project.benchmark("math", tasks=4)
    project.submit("--wait", timeout_s=100)
    before = tree(project.run_dir)

    said = project.submit("--wait", timeout_s=100)

    assert "1 final" in said
    assert "0.75 (4/4)" in said
    assert tree(project.run_dir) == before


def test_new_starts_a_run_of_its_own(project: Project) -> None:
    project.benchmark("math", tasks=2)
    project.submit("--wait", timeout_s=100)

    project.submit("--new", "--wait", timeout_s=100)

    assert len([path for path in project.runs.iterdir() if (path / "plan.json").exists()]) == 2
    assert len(project.requests()) == 4


def test_changing_how_jobs_run_is_no_new_experiment(project: Project) -> None:
    project.benchmark("math", tasks=2)
    project.submit("--wait", timeout_s=100)

    project.config["compute"]["here"]["max_concurrent"] = 1
    project.config["driver"]["benchmarks"]["math"]["run"]["num_samples_in_parallel"] = 3
    project.submit("--wait", timeout_s=100)

    assert json.loads((project.run_dir / "plan.json").read_text())["config"]["compute"]["here"]["max_concurrent"] == 1
    assert len(project.requests()) == 2


def test_jobs_outlive_the_command_and_its_ctrl_c(project: Project) -> None:
    project.config["services"]["policy"] = project.service(delay=0.3)
    project.benchmark("math", tasks=6, num_samples_in_parallel=1)
    command = [sys.executable, "-m", "orchestrate.cli.main", "eval", "submit", str(project.write()), "--wait"]
    waiting = subprocess.Popen(
        command, cwd=project.root, env=project.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True, preexec_fn=heed_interrupts,
    )  # fmt: skip
    wait_for(lambda: len(project.requests()) >= 1)

    # A terminal sends Ctrl-C to the whole foreground group.
    os.killpg(waiting.pid, signal.SIGINT)
    said, _ = waiting.communicate(timeout=20)

    assert waiting.returncode == 130
    assert "The jobs go on" in said
    assert "gym eval status" in said
    wait_for(lambda: is_final(project))
    assert set(Counter(request["task"] for request in project.requests()).values()) == {1}


def test_a_killed_job_is_replaced_and_nothing_recorded_is_asked_again(project: Project) -> None:
    project.config["services"]["policy"] = project.service(delay=0.3)
    project.benchmark("math", tasks=8, num_samples_in_parallel=1)
    project.submit()
    _, pid, _ = project.status()["benchmarks"][0]["shards"][0]["job_id"].split(":")
    wait_for(lambda: len(project.requests()) >= 4)

    os.kill(int(pid), signal.SIGKILL)
    wait_for(lambda: project.status()["benchmarks"][0]["shards"][0]["job_state"] == "GONE")
    said = project.submit("--wait", timeout_s=100)

    assert "0.75 (8/8)" in said
    repeated = [task for task, count in Counter(request["task"] for request in project.requests()).items() if count > 1]
    assert len(repeated) <= 1


def test_no_more_jobs_work_at_once_than_allowed(project: Project) -> None:
    project.config["compute"]["here"]["max_concurrent"] = 1
    project.config["services"]["policy"] = project.service(delay=0.1)
    project.benchmark("math", tasks=6, shards=3)

    project.submit("--wait", timeout_s=100)

    sessions = [
        [json.loads(line) for line in path.read_text().splitlines()] for path in project.run_dir.rglob("*_attempts.jsonl")
    ]
    spans = sorted((events[0]["at"], events[-1]["at"]) for events in sessions)
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(spans))


def test_failures_are_counted_and_the_run_says_incomplete(project: Project) -> None:
    project.benchmark("good", tasks=4)
    project.benchmark("bad", tasks=2, marks="[[mode: 400]]")

    said = project.submit("--wait", code=7, timeout_s=100)

    assert "0.75 (4/4)" in said
    assert "no score (0/2)" in said
    assert (project.run_dir / "bad" / "rollouts_coverage.json").exists()


def test_a_service_that_dies_ends_the_job_with_its_last_words(project: Project) -> None:
    project.config["services"]["policy"] = project.service(delay=0.2, exit_after=4, last_words="CUDA-error")
    project.benchmark("math", tasks=10, num_samples_in_parallel=1)

    said = project.submit("--wait", code=6, timeout_s=100)

    assert "are not completed" in said
    assert "CUDA-error" in project.logs()
    assert "ended with exit code" in project.logs()


def test_recorded_settings_invent_no_address_for_a_port_that_a_job_chose(project: Project) -> None:
    """They are sent to trackers, and an address of this machine would be believed."""
    project.benchmark("math", tasks=1)

    project.submit("--wait")

    recorded = yaml.safe_load((project.run_dir / "math" / "rollouts_config.yaml").read_text())
    assert recorded["policy_base_url"] == "http://port-chosen-by-the-job.invalid/v1"


def test_a_shard_that_is_final_starts_no_service(project: Project) -> None:
    project.benchmark("math", tasks=2)
    project.submit("--wait", timeout_s=100)
    (project.run_dir / "math" / "rollouts_merge.json").unlink()
    logs = len(list(project.run_dir.rglob("logs/policy-*.log")))

    project.submit("--wait", timeout_s=100)

    assert (project.run_dir / "math" / "rollouts_merge.json").exists()
    assert len(list(project.run_dir.rglob("logs/policy-*.log"))) == logs


def test_json_is_all_that_is_on_stdout(project: Project) -> None:
    project.benchmark("math", tasks=2)

    submitted = project.gym("submit", str(project.write()), "--json")
    waited = project.gym("submit", str(project.write()), "--json", "--wait", timeout_s=100)

    assert json.loads(submitted.stdout)["executor"] == "local"
    assert json.loads(waited.stdout)["benchmarks"][0]["measured"] == 2


def test_the_resolved_config_can_be_submitted_again(project: Project) -> None:
    project.benchmark("math", tasks=2)
    project.submit("--wait", timeout_s=100)

    again = project.gym("submit", str(project.run_dir / "resolved-config.yaml"), f"job.name={project.run_dir.name}")

    assert again.returncode == 0, again.stderr
    assert "1 final" in again.stdout


def test_a_run_goes_on_after_it_was_moved(project: Project) -> None:
    project.benchmark("math", tasks=2)
    project.submit("--wait", timeout_s=100)
    moved = project.root / "elsewhere"

    project.run_dir.rename(moved)

    done = project.gym("status", str(moved), "--json")
    assert json.loads(done.stdout)["benchmarks"][0]["measured"] == 2


def test_a_finished_benchmark_is_exported_once_where_the_yaml_says(project: Project) -> None:
    project.benchmark("math", tasks=3)
    project.benchmark("other", tasks=2)
    project.config["export"] = {"atif": {"agent_version": "1.0.0"}}
    project.config["driver"]["benchmarks"]["other"]["export"] = {"atif": None}

    project.submit("--wait", timeout_s=100)
    before = tree(project.run_dir)
    project.submit("--wait", timeout_s=100)

    assert len((project.run_dir / "math" / "rollouts_atif" / "manifest.jsonl").read_text().splitlines()) == 3
    assert not (project.run_dir / "other" / "rollouts_atif").exists()
    assert tree(project.run_dir) == before


def test_an_export_that_failed_is_repeated_by_the_same_command(project: Project) -> None:
    project.benchmark("math", tasks=2)
    blocked = project.root / "blocked"
    blocked.write_text("a file where a folder should be")
    project.config["export"] = {"atif": {"agent_version": "1.0.0", "output_dirpath": str(blocked / "atif")}}

    said = project.submit("--wait", code=5, timeout_s=100)
    blocked.unlink()
    project.submit("--wait", timeout_s=100)

    assert "0.5 (2/2)" in said
    assert f"exports of math did not arrive. gym eval status {project.run_dir.name} says why, and gym eval export" in said
    assert "an export failed: atif" in project.logs()
    assert (blocked / "atif" / "manifest.jsonl").exists()
    assert len(project.requests()) == 2


def test_a_shard_that_somebody_collects_by_hand_gets_no_job(project: Project) -> None:
    project.benchmark("math", tasks=2, shards=2)
    project.config["services"]["policy"]["command"] = ["false"]
    project.submit()
    wait_for(lambda: {shard["job_state"] for shard in project.status()["benchmarks"][0]["shards"]} == {"GONE"})

    with ShardLock(project.run_dir / "math" / "shards" / "1-of-2" / "rollouts.jsonl.lock"):
        said = project.submit()

    assert "1 with a job already, 1 submitted" in said

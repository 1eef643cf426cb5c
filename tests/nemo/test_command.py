"""NeMo Gym's own words on the command line and in a YAML, with a submission on one machine at the end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.nemo.bench import NemoBench
from tests.orchestrate.project import Project
from tests.support import nemo_stub
from tests.support.nemo_stub import AGENT, ENVIRONMENT, NemoStub


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path / "user", {"type": "local", "max_concurrent": 2})
    del project.config["services"], project.config["driver"]["policy_model"]
    return project


def run(project: Project, bench: NemoBench, *words: str) -> subprocess.CompletedProcess[str]:
    """``gym eval run --no-serve`` as people type it for NeMo Gym."""
    head = ["+head_server.host=127.0.0.1", f"+head_server.port={bench.stub.head_port}"]
    files = ["--input", str(bench.dataset), "--output", str(bench.artifacts.rollouts)]
    return project.gym("run", "--no-serve", *files, *words, *head)


def test_the_words_of_nemo_gym_collect_from_its_servers(project: Project, bench: NemoBench, stub: NemoStub) -> None:
    bench.write({"responses_create_params": {"input": "?"}, "n": 1}, {"responses_create_params": {"input": "?"}, "n": 2})

    done = run(
        project, bench, "--agent", AGENT, "--num-repeats", "2", "--concurrency", "4", "--max-output-tokens", "64",
        "--temperature", "0", "--resume", "+route_failures_to_sidecar=true", "+require_complete=true",
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "1.00 (4/4)" in done.stdout or "score     1" in done.stdout
    params = {"input": "?", "temperature": 0.0, "max_output_tokens": 64}
    assert [body["responses_create_params"] for body in stub.runs] == [params] * 4
    assert {row["agent_ref"]["name"] for row in bench.results()} == {AGENT}
    (entry,) = json.loads(bench.artifacts.aggregate.read_bytes())
    assert entry["agent_metrics"]["mean/reward"] == 1.0


def test_a_configuration_file_may_have_nemo_gyms_keys(project: Project, bench: NemoBench, stub: NemoStub) -> None:
    bench.write({"responses_create_params": {"input": "?"}})
    config = {
        "agent": "nemo_gym",
        "environment_routing_mode": "legacy",
        "environment_server_name": ENVIRONMENT,
        "head_server": {"host": "127.0.0.1", "port": stub.head_port},
        "input_jsonl_fpath": str(bench.dataset),
        "output_jsonl_fpath": str(bench.artifacts.rollouts),
        "limit": 0,
        "num_repeats": None,
        "num_samples_in_parallel": None,
        "retry_terminal_timeouts": True,
    }
    (project.root / "run.yaml").write_text(json.dumps(config))

    done = project.gym("run", "--config", "run.yaml")

    assert done.returncode == 0, done.stderr
    assert len(stub.runs) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(
            ["+route_failures_to_sidecar=false"], "route_failures_to_sidecar: False is not supported", id="off-switch"
        ),
        pytest.param(["+count_missing_rollouts_as_zero=true"], "give it to gym eval aggregate", id="switch-of-another-command"),
        pytest.param(["+max_resident_rollout_tasks=7"], "no more tasks exist than", id="bound-of-tasks"),
        pytest.param(["--model", "m"], "--model: with --no-serve the running servers have their model", id="model"),
        pytest.param(["--verifier", "number"], "--verifier: with --no-serve", id="verifier"),
        pytest.param(["+agent_nam=x"], "agent_nam: unknown key", id="misspelt"),
        pytest.param(["+agent_map.x=1"], "agent.agent_map", id="wrong-type"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(project: Project, bench: NemoBench, words: list[str], said: str) -> None:
    bench.tasks({})

    done = run(project, bench, *words)

    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert not bench.files()


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        pytest.param("--benchmark=mcqa", "start them with NeMo Gym's gym env start, then use --no-serve", id="servers"),
        pytest.param("--disable-aggregation", "Metrics need no servers and are always made", id="metrics"),
    ],
)
def test_a_flag_of_nemo_gym_that_is_not_here_says_what_to_do(project: Project, bench: NemoBench, flag: str, said: str) -> None:
    bench.tasks({})

    done = run(project, bench, flag)

    assert done.returncode == 2
    assert said in done.stderr
    assert not bench.files()


def test_an_agent_by_name_needs_running_servers(project: Project, bench: NemoBench) -> None:
    bench.tasks({})

    done = project.gym("run", "--input", str(bench.dataset), "--output", "x.jsonl", "--agent", AGENT)

    assert done.returncode == 2
    assert "--agent names a running server and needs --no-serve" in done.stderr


@pytest.mark.timeout(120)
def test_a_submission_collects_from_running_servers_in_shards(project: Project, bench: NemoBench, stub: NemoStub) -> None:
    bench.tasks(*({} for _ in range(6)))
    settings: dict[str, Any] = {
        "input_jsonl_fpath": str(bench.dataset),
        "agent": "nemo_gym",
        "head_server": {"host": "127.0.0.1", "port": stub.head_port},
        "num_repeats": {AGENT: 2},
    }
    project.config["driver"]["benchmarks"]["math"] = {"shards": 2, "run": settings, "resumable": {"max_retries": 2}}

    said = project.submit("--wait", timeout_s=100)
    again = project.submit("--wait", timeout_s=100)

    assert "1.00 (12/12)" in said or "1 (12/12)" in said, said
    assert "1 final" in again or "2 final" in again, again
    assert sorted((body["_ng_task_index"], body["_ng_rollout_index"]) for body in stub.runs) == [
        (task, repeat) for task in range(6) for repeat in range(2)
    ]
    merged = [json.loads(line) for line in (project.run_dir / "math" / "rollouts.jsonl").read_text().splitlines()]
    assert {row["_ng_environment_server"] for row in merged} == {ENVIRONMENT}
    stub.config["policy_model_name"] = "org/other"
    changed = project.submit("--wait", timeout_s=100)
    assert len(list(project.runs.glob("*/plan.json"))) == 2, changed


@pytest.mark.timeout(120)
def test_servers_may_be_a_service_of_the_job_and_must_be_those_that_were_saved(
    project: Project, bench: NemoBench, stub: NemoStub
) -> None:
    bench.tasks({}, {})
    saved = project.root / "servers.yaml"
    saved.write_text(yaml.safe_dump(stub.config))
    program = str(Path(nemo_stub.__file__))
    project.config["services"] = {
        "gym": {"type": "command", "command": [sys.executable, program, "{port}"], "health_check": {"path": "/readyz"}}
    }
    run = {"input_jsonl_fpath": str(bench.dataset), "agent": {"type": "nemo_gym", "config_file": str(saved)}}
    run["head_server"] = {"port": "{services.gym.port}"}
    project.config["driver"]["benchmarks"]["math"] = {"run": run}

    said = project.submit("--wait", timeout_s=100)

    assert "(2/2)" in said
    assert stub.runs == []
    stub.config["policy_model_name"] = "org/other"
    saved.write_text(yaml.safe_dump(stub.config))
    refused = project.submit("--wait", code=6, timeout_s=100)
    logs = "".join(path.read_text() for path in project.runs.rglob("logs/*"))
    assert "the servers that run are not those of" in refused + logs

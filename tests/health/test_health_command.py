"""``gym eval health-check``, and the check that follows ``gym eval run``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.health.rows import response, row, write
from tests.merge.build import answered, fill_all, plan
from tests.orchestrate.project import Project
from tests.support.model_server import ModelServer

ROOT = Path(__file__).resolve().parents[2]


def gym(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "orchestrate.cli.main", "eval", "health-check", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)


def test_a_file_is_checked_and_the_reports_are_named(tmp_path: Path) -> None:
    artifacts = write(tmp_path / "saved.jsonl", [row(0), row(1, response=response(""))])

    done = gym(artifacts.rollouts)

    assert done.returncode == 0, done.stderr
    assert "0 healthy, 1 unhealthy, 1 unobserved (agent_turn_hollow 1)\n  unobserved: nothing found" in done.stdout
    assert max(map(len, done.stdout.replace(str(tmp_path), "").splitlines())) <= 100
    assert "gym eval health-check names them" not in done.stdout
    assert str(tmp_path / "saved_health.json") in done.stdout
    assert str(tmp_path / "saved_verdicts.jsonl") in done.stdout


@pytest.mark.parametrize("above", [0, 1, 2], ids=["shard", "benchmark", "run"])
def test_a_directory_of_a_run_stands_for_its_rollouts(above: int, tmp_path: Path) -> None:
    made = plan(tmp_path / "run" / "bench", shards=2, tasks=4)
    shards = fill_all(made, lambda task, repeat: answered())
    directory = [shards[0].rollouts.parent, made.directory, tmp_path / "run"][above]

    done = gym(directory, "--json", "--workers", "1", "--ignore", "record_unreadable")

    found = json.loads(done.stdout)
    assert list(found) == [str(shard.rollouts) for shard in (shards[:1] if above == 0 else shards)]
    assert all(one["run"]["ignored_checks"] == ["record_unreadable"] for one in found.values())


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        pytest.param(["nowhere"], 3, "there is no such run, directory or file", id="no-such-path"),
        pytest.param(["."], 3, "there is no rollouts.jsonl", id="nothing-in-the-directory"),
        pytest.param([".", "--ignore", "hollow"], 2, "no such health check: hollow", id="unknown-check"),
        pytest.param([".", "--workers", "0"], 2, "'0' is not a whole number from 1", id="no-workers"),
        pytest.param(["r_failures.jsonl"], 3, "a companion of a run", id="companion"),
    ],
)
def test_what_cannot_be_checked_is_told_in_one_line(arguments: list[str], code: int, told: str, tmp_path: Path) -> None:
    (tmp_path / "r_failures.jsonl").write_text("{}\n")
    command = [sys.executable, "-m", "orchestrate.cli.main", "eval", "health-check", *arguments]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=50, check=False)

    assert done.returncode == code
    assert told in done.stderr
    assert done.stderr.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"r_failures.jsonl"}


@pytest.mark.parametrize("is_on", [True, False], ids=["on", "off"])
def test_a_run_is_followed_by_a_check_unless_it_is_switched_off(is_on: bool, tmp_path: Path, model_server: ModelServer) -> None:
    project = Project(tmp_path / "user", {"type": "local"})
    project.benchmark("t", tasks=4, marks="")
    address = ["-m", "test-model", "--model-url", model_server.base_url, "--verifier", "echoed"]
    switch = [] if is_on else ["+disable_health_check=true"]

    done = project.gym("run", "-i", "0.jsonl", "-o", "out/r.jsonl", *address, *switch)

    assert done.returncode == 0, done.stderr
    assert ("health: 0 healthy, 0 unhealthy, 4 unobserved; unobserved: nothing found" in done.stderr) is is_on
    assert (project.root / "out" / "r_health.json").exists() is is_on


def test_a_check_of_a_file_imports_no_more_than_it_needs(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text('{"_ng_task_index": 0, "_ng_rollout_index": 0}\n')
    heavy = ["numpy", "hydra", "omegaconf", "yaml", "submitit", "asyncio", "orchestrate.runs.directory"]
    code = (
        "import sys\nfrom orchestrate.cli.main import main\n"
        f"code = main({['eval', 'health-check', str(tmp_path / 'r.jsonl')]!r})\n"
        f"loaded = [name for name in {heavy!r} if name in sys.modules]\n"
        "sys.exit(f'loaded {loaded}' if loaded or code else 0)"
    )

    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr

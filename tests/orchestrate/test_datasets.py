"""Datasets that a submission makes: once, before anything is planned, and never taken for whole when they are not."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrate.config.load import load_config
from orchestrate.submission.datasets import missing_datasets
from tests.orchestrate.fake_slurm import FakeSlurm
from tests.orchestrate.project import Project, tree
from tests.support.processes import wait_for

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "user", {"type": "local", "max_concurrent": 2})


def prepared(project: Project, command: str | list[str], *, path: str = "data/made.jsonl") -> Path:
    """A benchmark whose dataset ``command`` makes at the place that is returned; the rows lie in ``source.jsonl``."""
    project.benchmark("math", tasks=4)
    settings: dict[str, Any] = project.config["driver"]["benchmarks"]["math"]
    Path(settings["run"]["input_jsonl_fpath"]).rename(project.root / "source.jsonl")
    settings["run"]["input_jsonl_fpath"] = path
    settings["prepare"] = {"command": command}
    return project.root / path


def test_a_missing_dataset_is_made_once(project: Project) -> None:
    dataset = prepared(project, "echo making; echo ran >> ran; cp source.jsonl data/made.jsonl")

    said = project.submit("--wait", timeout_s=100)
    again = project.submit("--wait", timeout_s=100)

    assert "data/made.jsonl is missing; it is now made by: echo making" in said
    assert "0.75 (4/4)" in said
    assert "0.75 (4/4)" in again
    assert (project.root / "ran").read_text() == "ran\n"
    assert [path.name for path in dataset.parent.iterdir()] == ["made.jsonl"]


def test_a_list_is_run_as_it_stands(project: Project) -> None:
    dataset = prepared(project, ["cp", "source.jsonl", "made $x.jsonl"], path="made $x.jsonl")

    project.submit("--wait", timeout_s=100)

    assert dataset.is_file()


def test_a_dataset_that_is_there_is_never_made(project: Project) -> None:
    dataset = prepared(project, "exit 1")
    dataset.parent.mkdir()
    (project.root / "source.jsonl").rename(dataset)

    assert "0.75 (4/4)" in project.submit("--wait", timeout_s=100)


def test_the_command_has_the_variables_of_the_driver(project: Project, tmp_path: Path) -> None:
    fake = FakeSlurm(tmp_path / "bin")
    project.config["compute"]["here"] = {"type": "slurm", "walltime": "10m"}
    prepared(project, 'test "$A$B$C" = onetwo && cp source.jsonl data/made.jsonl')
    project.config["driver"]["env"] = {"A": "lit:one", "B": "host:TWO", "C": "runtime:ON_NODES_ONLY"}

    done = project.gym("submit", str(project.write()), timeout_s=100, env={**fake.env, "TWO": "two"})

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("command", "told"),
    [
        pytest.param("exit 4", "the command ended with exit code 4", id="fails"),
        pytest.param("true", "the command ended well and left no file", id="makes-nothing"),
        pytest.param(["/no/such/program"], "the command ended with exit code 127", id="no-program"),
        pytest.param("mkdir data/made.jsonl", "the command ended well and left no file", id="a-directory"),
    ],
)
def test_a_command_that_makes_no_dataset_stops_the_submission(project: Project, command: str | list[str], told: str) -> None:
    prepared(project, command)

    said = project.submit(code=2)

    assert f"driver.benchmarks.math.prepare: {told}" in said.replace("gym eval submit: ", "")
    assert not project.runs.exists()
    assert not list(project.root.rglob(".made*"))


def test_what_a_failing_command_left_is_no_dataset(project: Project) -> None:
    dataset = prepared(project, "head -n 1 source.jsonl > data/made.jsonl; exit 1")

    said = project.submit(code=2)

    assert "what it left of the dataset is data/made.jsonl.incomplete" in said
    assert [path.name for path in dataset.parent.iterdir()] == ["made.jsonl.incomplete"]


def test_a_killed_submission_leaves_no_half_of_a_dataset_behind_as_the_whole(project: Project) -> None:
    slow = "head -n 1 source.jsonl > data/made.jsonl; if [ ! -e slept ]; then touch slept; sleep 1000; fi; "
    dataset = prepared(project, slow + "cp source.jsonl data/made.jsonl")
    command = [sys.executable, "-m", "orchestrate.cli.main", "eval", "submit", str(project.write())]
    with subprocess.Popen(command, cwd=project.root, env=project.environment(), stderr=subprocess.PIPE) as submitting:
        wait_for((project.root / "slept").exists)

        refused = project.submit(code=4)
        submitting.send_signal(signal.SIGKILL)

    assert "another submission makes this dataset" in refused
    assert dataset.exists()
    assert "0.75 (4/4)" in project.submit("--wait", timeout_s=100)
    assert [path.name for path in dataset.parent.iterdir()] == ["made.jsonl"]


def test_a_dry_run_says_what_would_make_the_dataset_and_runs_nothing(project: Project) -> None:
    prepared(project, "cp source.jsonl data/made.jsonl")
    project.write()
    before = tree(project.root)

    said = project.submit("--dry-run")
    machine = json.loads(project.submit("--dry-run", "--json"))

    command = "cp source.jsonl data/made.jsonl"
    assert f"driver.benchmarks.math: data/made.jsonl is missing; it would be made by: {command}" in said
    assert machine == {
        "missing_datasets": [{"benchmark": "math", "dataset": "data/made.jsonl", "command": "cp source.jsonl data/made.jsonl"}]
    }
    assert tree(project.root) == before


def test_a_dataset_in_a_root_of_nemo_gym_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = {"input_jsonl_fpath": "data/a.jsonl", "agent": "nemo_gym"}
    data = {
        "compute": {"here": {"type": "local"}},
        "driver": {"benchmarks": {"math": {"run": run, "prepare": {"command": "make"}}}},
        "job": {"output_path": str(tmp_path)},
    }
    loaded = load_config(data, where=Path("x"), environ={})
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path))
    before = missing_datasets(loaded)

    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jsonl").touch()

    assert [missing.dataset for missing in before] == [Path("data/a.jsonl")]
    assert missing_datasets(loaded) == []


def test_two_benchmarks_of_one_dataset_make_it_once(project: Project) -> None:
    prepared(project, "echo ran >> ran; cp source.jsonl data/made.jsonl")
    project.config["driver"]["benchmarks"]["again"] = project.config["driver"]["benchmarks"]["math"]

    said = project.submit("--wait", timeout_s=100)

    assert said.count("0.75 (4/4)") == 2
    assert (project.root / "ran").read_text() == "ran\n"


def test_jobs_never_make_a_dataset(project: Project) -> None:
    dataset = prepared(project, "echo ran >> ran; cp source.jsonl data/made.jsonl")
    project.submit("--wait", timeout_s=100)
    dataset.unlink()

    project.gym("resubmit", str(project.run_dir), "--reset-attempts")

    assert (project.root / "ran").read_text() == "ran\n"

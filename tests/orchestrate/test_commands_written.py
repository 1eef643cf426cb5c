"""How a benchmark that is one command may be written, what of it is the experiment, and the container that it runs in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from collector.formats.manifest import digest_of
from collector.preparation.prepare import experiment_of
from orchestrate.config.load import load_config
from tests.orchestrate.commands import SCORE, add, without_model
from tests.orchestrate.project import Project, tree

pytestmark = pytest.mark.timeout(120)

#: Stands for srun with Pyxis, which needs root and images: remembers its options and runs what follows them.
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do echo "$1" >> "$0.said"; shift; done
exec "$@"
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return without_model(tmp_path)


def test_another_command_is_another_experiment(project: Project) -> None:
    project.config["job"]["name"] = "mine"
    add(project, "swe", SCORE)
    project.submit("--wait", timeout_s=100)
    before = tree(project.runs)

    add(project, "swe", SCORE + "; true")
    said = project.submit(code=4)

    assert "benchmarks.swe.experiment.agent.command" in said
    assert tree(project.runs) == before


def test_a_container_is_started_by_srun_with_the_benchmarks_directory_in_it(project: Project) -> None:
    srun = project.root / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text(SRUN)
    srun.chmod(0o755)
    image = {
        "container": "nvcr.io#nvidia/pytorch:26.01",
        "mounts": ["/code:/code:ro"],
        "env": {"SUITE_TOKEN": "host:SUITE_TOKEN"},
    }
    project.config["driver"] |= image
    add(project, "swe", f'test -n "$SUITE_TOKEN" && {SCORE}')

    env = {"SUITE_TOKEN": "s3cr3t-ab", "PATH": f"{srun.parent}:{os.environ['PATH']}"}
    done = project.gym("submit", str(project.write()), "--wait", timeout_s=100, env=env)

    assert "0.25 (1/1)" in done.stdout, done.stderr + project.logs()
    directory = project.run_dir / "swe"
    said = Path(f"{srun}.said").read_text().splitlines()
    assert said[:4] == ["--overlap", "--nodes=1", "--ntasks=1", "--container-image=nvcr.io#nvidia/pytorch:26.01"]
    assert f"--container-mounts={directory}:{directory},/code:/code:ro" in said
    assert "--container-env=GYM_EVAL_RESULT,NEMO_GYM_BENCH_DIR,SUITE_TOKEN" in said
    assert f"--container-workdir={directory}" in said
    assert "s3cr3t-ab" not in "".join(said)


def test_another_image_is_another_experiment_and_another_mount_is_not(project: Project) -> None:
    def identity() -> str:
        config = load_config(project.config, where=Path("x"), environ={})
        return digest_of({"is": experiment_of(config.runs["swe"])})

    add(project, "swe", SCORE)
    plain = identity()
    project.config["driver"]["container"] = "image"
    contained = identity()
    project.config["driver"]["mounts"] = ["/a"]

    assert plain != contained
    assert contained == identity()


@pytest.mark.parametrize(
    ("benchmark", "driver", "told"),
    [
        pytest.param({}, {}, "driver.benchmarks.swe: needs either run or command", id="neither"),
        pytest.param({"command": "x", "shards": 2}, {}, "a command is one rollout", id="shards"),
        pytest.param({"command": "x", "prepare": {"command": "y"}}, {}, "put it into the command", id="prepare"),
        pytest.param({"command": "x", "timeout_s": 0}, {}, "driver.benchmarks.swe.timeout_s", id="no-time"),
        pytest.param({"command": "  "}, {}, "driver.benchmarks.swe.command", id="empty"),
        pytest.param({"command": "x {services.judge.url}"}, {}, "swe.command: no service 'judge'", id="reference"),
        pytest.param(
            {"command": "x", "export": {"atif": {"agent_version": "1"}}}, {}, "is a command, which leaves no answers", id="atif"
        ),
        pytest.param({"command": "x"}, {"mounts": ["/a"]}, "driver.mounts: is for driver.container", id="mounts"),
        pytest.param(
            {"run": {"input_jsonl_fpath": "x", "agent": {"type": "command", "command": "x"}}},
            {},
            "write driver.benchmarks.swe.command instead of run",
            id="as-an-agent",
        ),
    ],
)
def test_what_a_command_cannot_be_is_one_line(
    project: Project, benchmark: dict[str, Any], driver: dict[str, Any], told: str
) -> None:
    project.config["driver"]["benchmarks"]["swe"] = benchmark
    project.config["driver"] |= driver

    said = project.submit(code=2)

    assert told in said
    assert len(said.splitlines()) == 1
    assert not project.runs.exists()


def test_the_yaml_in_the_reference_is_valid() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference.md").read_text().partition("### A benchmark that is one command")[2]
    command, dataset = (yaml.safe_load(block.partition("```")[0]) for block in page.split("```yaml\n")[1:3])
    command["driver"]["benchmarks"] |= dataset
    model = {"type": "external", "url": "http://e/v1", "served_model_name": "m"}
    data = command | {"services": {"model": model}, "compute": {"here": {"type": "local"}}, "job": {"output_path": "runs"}}

    loaded = load_config(data, where=Path("x"), environ={"HF_TOKEN": "x"})

    assert set(loaded.runs) == {"swe", "code", "math"}


def test_a_dry_run_of_a_command_runs_nothing(project: Project) -> None:
    add(project, "swe", f"touch {project.root}/ran")
    project.write()
    before = tree(project.root)

    project.submit("--dry-run")

    assert tree(project.root) == before

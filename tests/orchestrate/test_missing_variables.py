"""A variable that jobs on this machine will miss is a refusal before anything is made; nodes of a cluster may have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.orchestrate.fake_slurm import FakeSlurm
from tests.orchestrate.project import Project, tree

EXTERNAL = {"type": "external", "url": "http://127.0.0.1:9/v1", "served_model_name": "m", "api_key_env": "NO_SUCH_KEY"}


def project_on(tmp_path: Path, kind: str) -> Project:
    made = Project(tmp_path / "user", {"type": kind})
    made.benchmark("math", tasks=2)
    return made


@pytest.mark.parametrize("words", [[], ["--dry-run"]], ids=["submit", "dry-run"])
def test_every_variable_that_a_local_job_would_miss_is_named_and_nothing_is_made(tmp_path: Path, words: list[str]) -> None:
    project = project_on(tmp_path, "local")
    project.config["services"]["policy"]["env"] = {"A": "runtime:NO_SUCH_A"}
    project.config["services"]["other"] = EXTERNAL
    project.config["driver"]["env"] = {"B": "runtime:NO_SUCH_B", "C": "runtime:PATH"}
    config = project.write()
    before = tree(project.root)

    done = project.gym("submit", str(config), *words)

    assert done.returncode == 2
    assert "services.policy.env: environment variable NO_SUCH_A is not set" in done.stderr
    assert "services.other.api_key_env: environment variable NO_SUCH_KEY is not set" in done.stderr
    assert "driver.env: environment variable NO_SUCH_B is not set" in done.stderr
    assert tree(project.root) == before


def test_a_node_of_a_cluster_may_have_what_this_machine_has_not(tmp_path: Path) -> None:
    project = project_on(tmp_path, "slurm")
    project.config["services"]["policy"]["env"] = {"A": "runtime:NO_SUCH_A"}
    project.config["compute"]["here"]["walltime"] = "10m"
    fake = FakeSlurm(tmp_path / "bin")

    done = project.gym("submit", str(project.write()), "--dry-run", env=fake.env)

    assert done.returncode == 0, done.stderr

"""F10: an exporter whose package is not installed is refused at submission, with the command that installs it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.orchestrate.project import Project, tree

# An import of None is what Python itself records for a package that must not be found.
HIDING = """import sys
for name in ("mlflow", "wandb", "pyarrow"):
    sys.modules[name] = None
"""
NEEDED = {
    "mlflow": ("mlflow", "mlflow", {"tracking_uri": "http://127.0.0.1:9"}),
    "wandb": ("wandb", "wandb", {"project": "p"}),
    "parquet": ("pyarrow", "tables", {}),
}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "project", {"type": "local"})
    made.benchmark("math", tasks=2)
    return made


def without_packages(tmp_path: Path, project: Project) -> dict[str, str]:
    """The environment of a program that finds none of the optional packages."""
    hiding = tmp_path / "hiding"
    hiding.mkdir()
    (hiding / "sitecustomize.py").write_text(HIDING)
    path = project.environment().get("PYTHONPATH", "")
    return {"PYTHONPATH": os.pathsep.join(part for part in (str(hiding), path) if part)}


def test_every_missing_package_is_named_at_submission_and_nothing_is_created(tmp_path: Path, project: Project) -> None:
    project.config["export"] = {name: settings for name, (_, _, settings) in NEEDED.items()}
    config = project.write()
    env = without_packages(tmp_path, project)
    before = tree(project.root)

    done = project.gym("submit", str(config), env=env)

    assert done.returncode == 2, done.stderr
    for name, (package, extra, _) in NEEDED.items():
        assert f"export.{name}: the package {package} is not installed: pip install 'gym-eval[{extra}]'" in done.stderr
    assert tree(project.root) == before


def test_a_package_that_no_benchmark_exports_with_is_not_asked_for(tmp_path: Path, project: Project) -> None:
    project.config["export"] = {"mlflow": NEEDED["mlflow"][2], "csv": {}}
    project.config["driver"]["benchmarks"]["math"]["export"] = {"mlflow": None}
    env = without_packages(tmp_path, project)

    done = project.gym("submit", str(project.write()), "--dry-run", env=env)

    assert done.returncode == 0, done.stderr

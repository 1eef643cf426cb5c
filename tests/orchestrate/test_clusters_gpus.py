"""Compute entries that YAMLs share, and GPUs: enough for the services, none twice, idle ones told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from collector.errors import ConfigError
from orchestrate.config.gpus import divide_devices, gpu_warning
from orchestrate.config.load import load_config
from tests.orchestrate.fake_slurm import FakeSlurm
from tests.orchestrate.project import Project


def config(gpus: int | None, *services: int, nodes: int = 1) -> Any:
    data = {
        "services": {
            f"s{i}": {"type": "vllm", "model": "m", "tensor_parallel_size": count} for i, count in enumerate(services)
        },
        "compute": {"hpc": {"type": "slurm", "walltime": "4h", "gpus_per_node": gpus, "nodes": nodes}},
        "driver": {
            "policy_model": "s0",
            "benchmarks": {"a": {"run": {"input_jsonl_fpath": "x", "verifier": {"type": "exact_match"}}}},
        },
        "job": {"output_path": "/runs"},
    }
    return load_config(data, where=Path("x.yaml"), environ={}).config


@pytest.mark.parametrize("case", [(4, 8), (4, 2, 3)])
def test_services_that_do_not_fit_are_refused(case: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"services: need \d GPUs on one node"):
        config(*case)


@pytest.mark.parametrize(
    ("case", "nodes", "idle"),
    [((8, 8), 1, None), ((8, 4), 1, "4 of 8"), ((8, 4, 2), 1, "2 of 8"), ((None, 4), 1, None), ((8, 8), 2, "8 of 16")],
)
def test_idle_gpus_are_told(case: tuple[Any, ...], nodes: int, idle: str | None) -> None:
    warning = gpu_warning(config(*case, nodes=nodes))

    assert warning is None if idle is None else idle in (warning or "")


@pytest.mark.parametrize(
    ("visible", "wanted", "divided"),
    [
        ("0,1,2,3", {"a": 2, "b": 1}, {"a": "0,1", "b": "2"}),
        ("4,5", {"a": 1, "b": 1}, {"a": "4", "b": "5"}),
        ("0,1", {"a": 2}, {}),
        (None, {"a": 1, "b": 1}, {}),
        ("0", {"a": 1, "b": 1}, {}),
    ],
)
def test_no_device_is_given_twice(visible: str | None, wanted: dict[str, int], divided: dict[str, str]) -> None:
    assert divide_devices(visible, wanted) == divided


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path / "user", {"type": "local"})
    project.benchmark("a", tasks=2)
    clusters = tmp_path / "config" / "gym-eval" / "clusters"
    clusters.mkdir(parents=True)
    (clusters / "hpc.yaml").write_text(yaml.safe_dump({"type": "slurm", "account": "research", "walltime": "4h"}))
    return project


def test_a_cluster_file_is_the_compute_entry(project: Project, tmp_path: Path) -> None:
    env = {"XDG_CONFIG_HOME": str(tmp_path / "config"), **FakeSlurm(tmp_path / "bin").env}
    project.config["compute"] = {"hpc": {"walltime": "2h"}}

    done = project.gym("submit", str(project.write()), "--cluster", "hpc", "compute.hpc.account=other", "--dry-run", env=env)

    assert done.returncode == 0, done.stderr
    assert "#SBATCH --account=other" in done.stdout
    assert "#SBATCH --time=0-02:00:00" in done.stdout


def test_an_unknown_cluster_is_told_with_those_there_are(project: Project, tmp_path: Path) -> None:
    env = {"XDG_CONFIG_HOME": str(tmp_path / "config")}

    done = project.gym("submit", str(project.write()), "--cluster", "hcp", "--resolve-only", env=env)

    assert done.returncode == 3
    assert "Clusters here: hpc" in done.stderr


def test_the_schema_knows_every_key_of_a_submit_yaml(project: Project) -> None:
    schema = json.loads(project.gym("schema").stdout)

    assert set(schema["properties"]) == {"services", "compute", "driver", "job", "export"}
    assert schema["additionalProperties"] is False
    assert "output_jsonl_fpath" not in schema["$defs"]["Run"]["properties"]
    assert {"CommandService", "VllmService", "ExternalService", "SlurmCompute", "LocalCompute", "Requeue"} <= set(
        schema["$defs"]
    )

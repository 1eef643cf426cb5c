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


def config(gpus: int | None, *services: int, nodes: int = 1, **compute: Any) -> Any:
    data = {
        "services": {
            f"s{i}": {"type": "vllm", "model": "m", "tensor_parallel_size": count} for i, count in enumerate(services)
        },
        "compute": {"hpc": {"type": "slurm", "walltime": "4h", "gpus_per_node": gpus, "nodes": nodes, **compute}},
        "driver": {
            "policy_model": "s0",
            "benchmarks": {"a": {"run": {"input_jsonl_fpath": "x", "verifier": {"type": "exact_match"}}}},
        },
        "job": {"output_path": "/runs"},
    }
    return load_config(data, where=Path("x.yaml"), environ={}).config


def test_services_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"services: need 5 GPUs on one node \(s0 2, s1 3\), which has 4"):
        config(4, 2, 3)


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_service_larger_than_a_node_is_refused_by_name_however_many_nodes_the_job_has(nodes: int) -> None:
    with pytest.raises(ConfigError) as error:
        config(4, 8, 1, nodes=nodes)

    told = "services.s0: needs 8 GPUs (tensor_parallel_size 8 x pipeline_parallel_size 1) and a node has 4: type vllm serves on one node"
    assert told in str(error.value)
    assert "s1" not in str(error.value)


@pytest.mark.parametrize(
    ("gres", "has"),
    [
        pytest.param("gpu:4", 4, id="count"),
        pytest.param("gpu:h100:4", 4, id="type-and-count"),
        pytest.param("nvme:1,gpu:h100:2,fast:3", 2, id="among-others"),
        pytest.param("gres/gpu:4", 4, id="full-name"),
        pytest.param("gpu:4(S:0-1)", 4, id="sockets"),
        pytest.param("gpu:h100", None, id="no-count"),
        pytest.param("mps:400", None, id="another"),
        pytest.param("xgpu:2", None, id="ends-alike"),
    ],
)
def test_the_gpus_of_a_node_may_be_said_as_an_option_of_sbatch(gres: str, has: int | None) -> None:
    def load() -> object:
        return config(None, 8, extra_args={"gres": gres})

    if has is None:
        assert load()
    else:
        with pytest.raises(ConfigError, match=rf"services.s0: needs 8 GPUs .* and a node has {has}:"):
            load()


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

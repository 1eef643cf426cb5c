"""Node pools: what is refused, what a job asks Slurm for, and on which of its nodes a service runs."""

from __future__ import annotations

import asyncio
import os
import socket
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from collector.errors import ConfigError, ServiceError
from orchestrate.config.gpus import gpu_warning
from orchestrate.config.load import load_config
from orchestrate.config.pools import Placement, placements_of
from orchestrate.config.service_command import command_of
from orchestrate.config.services import CommandService, VllmService
from orchestrate.doctor.cluster import check_cluster
from orchestrate.operate.accounting import parse_sacct
from orchestrate.scheduler import leader_of
from orchestrate.services.placing import find_site
from tests.orchestrate.fake_slurm import FakeSlurm
from tests.orchestrate.project import Project

CONFIG: dict[str, Any] = {
    "services": {
        "policy": {"type": "vllm", "model": "m", "tensor_parallel_size": 4, "node_pool": "big"},
        "judge": {"type": "vllm", "model": "j"},
    },
    "compute": {
        "hpc": {
            "type": "slurm",
            "walltime": "4h",
            "node_pools": {
                "small": {"partition": "a40", "gpus_per_node": 1},
                "big": {"partition": "h100", "nodes": 2, "gpus_per_node": 4},
            },
        }
    },
    "driver": {
        "policy_model": "policy",
        "benchmarks": {"a": {"run": {"input_jsonl_fpath": "x", "verifier": {"type": "exact_match"}}}},
    },
    "job": {"output_path": "/runs"},
}


def changed(path: str, value: Any) -> dict[str, Any]:
    data = deepcopy(CONFIG)
    *parents, last = path.split(".")
    node = data
    for key in parents:
        node = node[key]
    node[last] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        pytest.param("services.policy.node_pool", "bog", "services.policy.node_pool: no node pool 'bog'. Did you mean 'big'?", id="misspelt"),
        pytest.param("compute.hpc.node_pools", {}, "services.policy.node_pool: compute.hpc has no node_pools", id="none"),
        pytest.param("compute", {"here": {"type": "local"}}, "services.policy.node_pool: compute.here has no node_pools", id="local"),
        pytest.param("compute.hpc.partition", "x", "compute.hpc.partition: each of node_pools says it", id="partition-twice"),
        pytest.param("compute.hpc.nodes", 2, "compute.hpc.nodes: each of node_pools says it", id="nodes-twice"),
        pytest.param("compute.hpc.max_concurrent", 2, "compute.hpc.max_concurrent: pools that differ make a heterogeneous job", id="no-arrays"),
        pytest.param("compute.hpc.node_pools.big.partitoin", "x", "Did you mean 'partition'?", id="unknown-key"),
        pytest.param("services.policy.tensor_parallel_size", 8, "services.policy: needs 8 GPUs (tensor_parallel_size 8 x pipeline_parallel_size 1) and a node of node pool big has 4: type vllm serves", id="too-large"),
        pytest.param("services.judge.node_pool", "big", "only those of the first pool can be divided", id="two-on-a-far-node"),
    ],
)  # fmt: skip
def test_pools_that_cannot_be_are_told(path: str, value: Any, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(changed(path, value), where=Path("x.yaml"), environ={})

    assert told in str(error.value)


@pytest.mark.parametrize(
    ("pools", "placement"),
    [
        pytest.param({"a": {"partition": "p"}, "big": {"partition": "q"}}, Placement(1, 0), id="they-differ"),
        pytest.param({"a": {"partition": "p", "nodes": 3}, "big": {"partition": "p"}}, Placement(None, 3), id="of-one-kind"),
        pytest.param({"big": {"partition": "p"}, "a": {"partition": "q"}}, None, id="the-first"),
    ],
)
def test_a_pinned_service_runs_on_the_first_node_of_its_pool(pools: dict[str, Any], placement: Placement | None) -> None:
    config = load_config(changed("compute.hpc.node_pools", pools), where=Path("x.yaml"), environ={}).config

    assert placements_of(config).get("policy") == placement


def test_idle_gpus_are_counted_over_all_pools() -> None:
    config = load_config(CONFIG, where=Path("x.yaml"), environ={}).config

    assert gpu_warning(config) == "4 of 9 GPUs of each job are idle: services use 5"


def test_each_shard_is_a_heterogeneous_job_of_its_own(tmp_path: Path) -> None:
    fake = FakeSlurm(tmp_path / "bin")
    pools = {"front": {"partition": "cpu"}, "back": {"partition": "gpu", "gpus_per_node": 4, "extra_args": {"nice": 5}}}
    project = Project(
        tmp_path / "user", {"type": "slurm", "walltime": "1:00:00", "account": "acc", "mem": "2G", "node_pools": pools}
    )
    project.benchmark("math", tasks=3, shards=3)

    done = project.gym("submit", str(project.write()), env=fake.env)

    assert done.returncode == 0, done.stderr
    assert [job[0] for job in fake.jobs()] == ["101", "102", "103"]
    script = next(project.run_dir.glob("math/jobs/gym-math-*/job.sh")).read_text()
    assert "--array" not in script
    first, _, second = script.partition("#SBATCH hetjob\n")
    assert "--partition=cpu" in first
    token = next(line for line in first.splitlines() if "--job-name=" in line)
    expected = [token, "#SBATCH --account=acc", "#SBATCH --time=0-01:00:00", "#SBATCH --mem=2G", "#SBATCH --requeue"]
    expected += [
        "#SBATCH --partition=gpu",
        "#SBATCH --nodes=1",
        "#SBATCH --ntasks=1",
        "#SBATCH --gpus-per-node=4",
        "#SBATCH --nice=5",
    ]
    assert [line for line in second.splitlines() if line.startswith("#SBATCH")] == expected
    finisher = next(project.run_dir.glob("math/jobs/gym-finish-*/job.sh")).read_text()
    assert "hetjob" not in finisher
    assert "--partition=cpu" in finisher
    assert "--dependency=afterany:101:102:103" in finisher


def test_the_doctor_looks_at_the_partition_of_each_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeSlurm(tmp_path / "bin")
    fake.program("scontrol", 'case "$*" in *h100*) echo "PartitionName=h100 State=UP MaxTime=1:00:00";; *a40*) exit 1;; esac')
    monkeypatch.setenv("PATH", fake.env["PATH"])
    compute = load_config(CONFIG, where=Path("x.yaml"), environ={}).config.the_compute
    assert compute.type == "slurm"

    found = {f"{finding.level} {finding.subject}": finding.text for finding in check_cluster(compute, shards=1)}

    assert found["fail partition"].startswith("a40: ")
    assert found["ok partition"].startswith("h100: ")
    assert "h100 allows" in found["fail walltime"]


@pytest.mark.parametrize(
    ("text", "job_id"),
    [("7", "7"), ("7_3", "7_3"), (" 7+0 ", "7"), ("7+1", None), ("7+12", None)],
)
def test_a_heterogeneous_job_is_known_by_its_first_component(text: str, job_id: str | None) -> None:
    assert leader_of(text) == job_id


def test_accounting_counts_a_heterogeneous_job_once() -> None:
    times = "2026-01-01T00:00:00|2026-01-01T00:00:10|2026-01-01T00:01:10|00:01:00|COMPLETED"

    assert [run.elapsed_s for run in parse_sacct(f"7+0|{times}\n7+1|{times}\n")["7"]] == [60.0]


def test_a_container_on_another_node_is_one_step_there() -> None:
    step = ("srun", "--overlap", "--nodes=1", "--ntasks=1", "--nodelist=n2", "--het-group=1")
    service = CommandService(type="command", command=["serve"], served_model_name="m", container="image")

    command = command_of(service, name="judge", job="7", step=step)

    assert command[: len(step) + 2] == [*step, "--container-image=image", "--container-name=gym-judge-7"]
    assert command[-1] == "serve"


def test_vllm_listens_where_it_is_told() -> None:
    command = command_of(VllmService(type="vllm", model="m"), name="policy", job="7")

    assert command[command.index("--host") + 1] == "{host}"


def slurm_programs(directory: Path, srun: str) -> dict[str, str]:
    """The environment of a job on node n1 whose Slurm says what it must, and whose srun is ``srun``."""
    programs = {"scontrol": 'case "$2" in hostnames) echo n1;; *) echo NodeName=n1 NodeAddr=10.0.0.1;; esac', "srun": srun}
    for name, body in programs.items():
        (directory / name).write_text(f"#!/bin/sh\n{body}\n")
        (directory / name).chmod(0o755)
    return {"PATH": f"{directory}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "n1"}


def test_what_a_task_prolog_says_is_no_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = slurm_programs(tmp_path, "echo welcome to n1; echo 4711")
    monkeypatch.setenv("PATH", environ["PATH"])

    site = asyncio.run(find_site("services.policy", Placement(None, 0), None, environ))

    assert (site.address, site.port) == ("10.0.0.1", 4711)


def test_a_step_without_a_port_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = slurm_programs(tmp_path, "echo welcome")
    monkeypatch.setenv("PATH", environ["PATH"])

    with pytest.raises(ServiceError, match=r"services.policy: srun gave no free port, but 'welcome'"):
        asyncio.run(find_site("services.policy", Placement(None, 0), None, environ))


def test_a_port_that_was_asked_for_is_looked_at_on_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step runs here, behind the options of srun."""
    environ = slurm_programs(tmp_path, 'while [ "${1#--}" != "$1" ]; do shift; done; exec "$@"')
    monkeypatch.setenv("PATH", environ["PATH"])
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ServiceError, match=f"services.policy: something listens on its port {port} already"):
            asyncio.run(find_site("services.policy", Placement(None, 0), port, environ))

    assert asyncio.run(find_site("services.policy", Placement(None, 0), port, environ)).port == port


def test_a_job_that_is_told_to_stop_leaves_no_step_that_it_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = tmp_path / "asked"
    environ = slurm_programs(tmp_path, f"echo $$ > {asked}.tmp; mv {asked}.tmp {asked}; exec sleep 60")
    monkeypatch.setenv("PATH", environ["PATH"])

    async def stopped_meanwhile() -> None:
        finding = asyncio.ensure_future(find_site("services.policy", Placement(None, 0), None, environ))
        while not (asked.exists() or finding.done()):
            await asyncio.sleep(0.01)
        finding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await finding

    asyncio.run(stopped_meanwhile())

    with pytest.raises(ProcessLookupError):
        os.kill(int(asked.read_text()), 0)


def test_the_operations_page_shows_a_judge_on_nodes_of_its_own() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    shown = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])

    config = load_config(shown, where=Path("x.yaml"), environ={}).config

    assert placements_of(config) == {"judge": Placement(group=1, node=0)}
    assert gpu_warning(config) is None

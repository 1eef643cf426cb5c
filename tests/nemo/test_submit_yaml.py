"""Submit YAMLs of NeMo Gym 0.7.0: what of them runs, and as what; everything else is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from collector.errors import ConfigError
from orchestrate.config.load import load_config
from orchestrate.config.submit import SubmitConfig

MINIMAL = """
services:
  policy:
    type: vllm
    container: nvcr.io#nvidia/vllm:26.01
    model: org/model
    served_model_name: model
    port: 8000
    number_of_instances: 1
    tensor_parallel_size: 8
    trust_remote_code: true
    placement: cluster
    extra_args: "--max-model-len 32768 --enable-prefix-caching"
    health_check: {path: /health, port: 8000, timeout_seconds: 1800}
    env: {HF_TOKEN: "runtime:HF_TOKEN", VLLM_LOGGING_LEVEL: "lit:WARNING"}
    mounts: ["/lustre/models:/models:ro"]
compute:
  cluster:
    type: slurm
    account: research
    walltime: "04:00:00"
    node_pools:
      gpu: {partition: batch, nodes: 1, ntasks_per_node: 1, gpus_per_node: 8, extra_args: {exclusive: true}}
driver:
  policy_model: policy
  policy_host: localhost
  benchmarks:
    math:
      run:
        input_jsonl_fpath: math.jsonl
        num_repeats: 4
        num_samples_in_parallel: 64
        responses_create_params: {temperature: 0.6, max_output_tokens: 4096}
        verifier: number
      resumable: {max_retries: 5, max_walltime: "1-00:00:00"}
job: {output_path: /lustre/me/runs}
otel: {enabled: false}
"""


def changed(path: str, value: Any) -> dict[str, Any]:
    """The minimal YAML with ``value`` at ``path``."""
    data = yaml.safe_load(MINIMAL)
    *parents, last = path.split("/")
    node = data
    for key in parents:
        node = node[key]
    node[last] = value
    return data


def load(data: dict[str, Any]) -> SubmitConfig:
    return load_config(data, where=Path("submit.yaml"), environ={}).config


def test_a_service_of_one_instance_on_one_pool_is_a_job_with_its_options() -> None:
    config = load(yaml.safe_load(MINIMAL))

    compute, policy = config.the_compute, config.services["policy"]
    assert compute.type == "slurm"
    (pool,) = compute.node_pools.values()
    assert (pool.partition, pool.nodes, pool.gpus_per_node, compute.account) == ("batch", 1, 8, "research")
    assert pool.extra_args == {"exclusive": True}
    assert policy.type == "vllm"
    assert (policy.ready_timeout_s, policy.tensor_parallel_size, policy.port) == (1800, 8, 8000)
    assert policy.extra_args == ["--max-model-len", "32768", "--enable-prefix-caching"]
    assert policy.container == "nvcr.io#nvidia/vllm:26.01"
    assert policy.mounts == ["/lustre/models:/models:ro"]


def test_a_service_may_be_pinned_to_a_pool() -> None:
    data = changed("services/policy/node_pool", "gpu")
    judge = {"type": "vllm", "model": "org/judge", "container": "image", "node_pool": "small", "placement": "cluster"}
    data["services"]["judge"] = judge
    data["compute"]["cluster"]["node_pools"]["small"] = {"partition": "batch", "nodes": 1, "gpus_per_node": 8}

    config = load(data)

    services = {name: service.node_pool for name, service in config.services.items() if service.type == "vllm"}
    assert services == {"policy": "gpu", "judge": "small"}


@pytest.mark.parametrize(
    ("resumable", "expected"),
    [
        pytest.param(False, (0, None), id="false"),
        pytest.param(True, (20, None), id="true"),
        pytest.param({"max_retries": 5, "max_walltime": "1-00:00:00"}, (5, "1-00:00:00"), id="map"),
        pytest.param({"max_walltime": "90"}, (20, "90"), id="part-of-a-map"),
    ],
)
def test_resumable_says_how_often_a_job_goes_back_to_the_queue(resumable: Any, expected: tuple[int, str | None]) -> None:
    config = load(changed("driver/benchmarks/math/resumable", resumable))

    requeue = config.driver.benchmarks["math"].requeue
    assert (requeue.max_requeues, requeue.max_walltime) == expected


def test_a_benchmark_of_running_servers_keeps_nemo_gyms_keys() -> None:
    run = {"input_jsonl_fpath": "a.jsonl", "agent": "nemo_gym", "agent_map": {"a": "b"}, "head_server": {"port": 12000}}

    config = load(changed("driver/benchmarks/math/run", run | {"require_complete": True}))

    agent = config.driver.benchmarks["math"].run["agent"]
    assert agent == {"type": "nemo_gym", "agent_map": {"a": "b"}, "head_server": {"port": 12000}}


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        pytest.param("otel", {"endpoint": "http://x"}, "otel: is not supported", id="otel-is-on-by-default"),
        pytest.param("driver/gym_install", {"ref": "main"}, "driver.gym_install: is not supported", id="gym-install"),
        pytest.param("driver/container", "python:3.12", "driver.container: is not supported", id="driver-container"),
        pytest.param("driver/policy_host", "node7", "driver.policy_host: is not supported", id="policy-host"),
        pytest.param("driver/policy_model_type", "vllm_model", "driver.policy_model_type: is not supported", id="model-type"),
        pytest.param("driver/mounts", ["/a:/b"], "driver.mounts: is not supported", id="driver-mounts"),
        pytest.param("services/policy/type", "vllm_pd", "services.policy.type: vllm_pd is not supported", id="vllm-pd"),
        pytest.param("services/policy/type", "ray", "services.policy.type: ray is not supported", id="ray"),
        pytest.param("services/policy/number_of_instances", 4, "number_of_instances: is not supported", id="instances"),
        pytest.param("services/policy/use_ray_serve", True, "use_ray_serve: is not supported", id="ray-serve"),
        pytest.param("services/policy/pre_command", "pip install x", "pre_command: is not supported", id="pre-command"),
        pytest.param("services/policy/health_check", {"port": 9}, "health_check.port: must be the service's own", id="port"),
        pytest.param("services/policy/placement", "elsewhere", "placement", id="another-compute"),
        pytest.param("driver/benchmarks/math/command", "bash run.sh", "math: has run and command", id="command-beside-run"),
        pytest.param("driver/benchmarks/math/prepare", {"a": 1}, "math.prepare: a map of overrides is not", id="prepare"),
        pytest.param("driver/benchmarks/math/resumable", {"retries": 1}, "math.resumable: must be true", id="resumable"),
        pytest.param("driver/benchmarks/math/run/config_paths", ["a.yaml"], "run.config_paths: is not supported", id="servers"),
    ],
)
def test_what_has_no_counterpart_is_refused_by_name_and_with_what_to_do(path: str, value: Any, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(changed(path, value))

    assert words in str(caught.value)
    assert str(caught.value).startswith("submit.yaml: ")


def test_a_command_with_a_container_is_taken_as_it_stands() -> None:
    data = changed("driver/container", "nvcr.io#nvidia/pytorch:26.01")
    data["driver"]["mounts"] = ["/lustre/code:/code:ro"]
    data["driver"]["benchmarks"]["swe"] = {"command": "bash /code/run.sh", "run": {}, "prepare": {}, "resumable": True}

    config = load(data)

    assert config.driver.benchmarks["swe"].command == "bash /code/run.sh"
    assert (config.driver.container, config.driver.mounts) == ("nvcr.io#nvidia/pytorch:26.01", ["/lustre/code:/code:ro"])


def test_every_problem_is_told_at_once() -> None:
    data = changed("driver/gym_install", {"ref": "main"})
    data["otel"] = {}
    data["driver"]["benchmarks"]["math"]["command"] = "x"

    with pytest.raises(ConfigError) as caught:
        load(data)

    assert all(key in str(caught.value) for key in ("otel", "gym_install", "math: has run and command"))


def test_the_yaml_on_the_page_for_nemo_gyms_users_is_valid() -> None:
    page = (Path(__file__).parents[2] / "docs" / "nemo-gym.md").read_text()
    texts = [block.partition("```")[0] for block in page.split("```yaml\n")[1:]]
    (text,) = [text for text in texts if text.startswith("services:")]
    data = yaml.safe_load(text) | {"compute": {"here": {"type": "local"}}, "job": {"output_path": "runs"}}

    config = load(data)

    assert config.services["gym"].type == "command"
    assert config.driver.benchmarks["mcqa"].run["agent"]["head_server"] == {"port": "{services.gym.port}"}

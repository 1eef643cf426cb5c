"""Services by type: the command of vLLM, containers, references to services whose port only the job knows, and GPUs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from collector.errors import ConfigError
from orchestrate.config.load import load_config, settings_of
from orchestrate.config.service_command import command_of
from orchestrate.config.services import CommandService, VllmService
from orchestrate.services.group import group_of
from tests.orchestrate.project import Project
from tests.support.processes import wait_for


def vllm(**options: Any) -> VllmService:
    return VllmService.model_validate({"type": "vllm", "model": "org/model 7B", **options})


def data(**services: Any) -> dict[str, Any]:
    return {
        "services": services,
        "compute": {"here": {"type": "local"}},
        "driver": {
            "policy_model": "policy",
            "benchmarks": {"a": {"run": {"input_jsonl_fpath": "x", "verifier": {"type": "exact_match"}}}},
        },
        "job": {"output_path": "/runs"},
    }


def load(config: dict[str, Any]) -> Any:
    return load_config(config, where=Path("x.yaml"), environ={})


VLLM = {"type": "vllm", "model": "org/m"}


def test_vllm_gets_its_model_its_name_and_its_port() -> None:
    command = command_of(vllm(), name="policy", job="7")

    assert command[:3] == ["vllm", "serve", "org/model 7B"]
    assert command[command.index("--served-model-name") + 1] == "org/model 7B"
    assert command[command.index("--port") + 1] == "{port}"


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ({"served_model_name": "short"}, "--served-model-name short"),
        ({"tensor_parallel_size": 4}, "--tensor-parallel-size 4"),
        ({"pipeline_parallel_size": 2}, "--pipeline-parallel-size 2"),
        ({"trust_remote_code": True}, "--trust-remote-code"),
        ({"extra_args": "--max-model-len 8192 --note 'a b'"}, "--max-model-len 8192 --note a b"),
        ({"extra_args": ["--note", "a b"]}, "--note a b"),
    ],
)
def test_every_option_of_vllm_reaches_its_command(options: dict[str, Any], seen: str) -> None:
    assert seen not in " ".join(command_of(vllm(), name="policy", job="7"))
    assert seen in " ".join(command_of(vllm(**options), name="policy", job="7"))


def test_two_shards_on_one_node_have_containers_of_their_own() -> None:
    service = vllm(container="nvcr.io#nvidia/vllm:1", mounts=["/models:/models:ro"], env={"B": "lit:x", "A": "host:HF_TOKEN"})

    first, second = (command_of(service, name="policy", job=job, variables=service.env) for job in ("81_0", "81_1"))

    assert first[:4] == ["srun", "--overlap", "--nodes=1", "--ntasks=1"]
    assert "--container-image=nvcr.io#nvidia/vllm:1" in first
    assert "--container-mounts=/models:/models:ro" in first
    assert "--container-env=A,B" in first
    assert [part for part in first if part not in second] == ["--container-name=gym-policy-81_0"]
    assert "HF_TOKEN" not in " ".join(first)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"container": "nemo.sqsh"}, "services.policy.container: 'nemo.sqsh' is a file: write its absolute path"),
        ({"container": "./nemo.sqsh"}, "write its absolute path"),
        ({"mounts": ["/a:/b,c"]}, "services.policy.mounts[0]: '/a:/b,c'"),
        ({"mounts": ["/a:/b:ro:x"]}, "PATH:INSIDE:FLAGS"),
        ({"mounts": ["a:/b"]}, "both paths of a mount are absolute"),
        ({"extra_args": "--x 'y"}, "write a list"),
        ({"tensor_parallel": 2}, "services.policy.tensor_parallel: unknown key. Did you mean 'tensor_parallel_size'"),
    ],
)
def test_what_a_container_plugin_would_misread_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(data(policy={**VLLM, **options}))

    assert told in str(caught.value)


def test_a_reference_becomes_the_address_that_the_job_chose() -> None:
    config = data(policy=VLLM, judge={"type": "vllm", "model": "org/judge"})
    run = config["driver"]["benchmarks"]["a"]["run"]
    run["verifier"] = {"type": "echoed", "url": "{services.judge.url}/x", "names": ["{services.judge.model}", "{other}"]}

    settings = settings_of(load(config).config, "a", output=Path("y.jsonl"), urls={"judge": "http://127.0.0.1:4711/v1"})

    assert settings.verifier == {"type": "echoed", "url": "http://127.0.0.1:4711/v1/x", "names": ["org/judge", "{other}"]}


def test_a_reference_to_nothing_is_refused_with_its_path() -> None:
    config = data(policy=VLLM, judge={"type": "vllm", "model": "org/judge"})
    config["driver"]["benchmarks"]["a"]["run"]["verifier"] = {
        "type": "echoed",
        "a": ["{services.jugde.url}"],
        "b": "{services.judge.host}",
    }

    with pytest.raises(ConfigError) as caught:
        load(config)

    assert "driver.benchmarks.a.run.verifier.a[0]: no service 'jugde'. Did you mean 'judge'" in str(caught.value)
    assert "driver.benchmarks.a.run.verifier.b: a service has no 'host'" in str(caught.value)


def test_an_unknown_verifier_is_told_with_its_path(tmp_path: Path) -> None:
    project = Project(tmp_path / "user", {"type": "local"})
    project.benchmark("x", tasks=1, verifier={"type": "numbr"})

    said = project.submit(code=2)

    assert "driver.benchmarks.x.run.verifier: unknown verifier 'numbr'" in said


def test_a_container_gets_values_in_its_environment_and_not_in_its_arguments(tmp_path: Path) -> None:
    """A stand-in for srun shows what it is called with: a real one needs Pyxis."""
    fake = tmp_path / "srun"
    fake.write_text('#!/bin/bash\nprintf "%s\\n" "$@" > "$SEEN/args"; env > "$SEEN/env"; exit 3\n')
    fake.chmod(0o755)
    service = CommandService.model_validate(
        {
            "type": "command",
            "command": ["serve", "{port}"],
            "served_model_name": "m",
            "container": "image",
            "port": 4711,
            "env": {"TOKEN": "runtime:SECRET"},
        }
    )
    environ = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "SEEN": str(tmp_path), "SECRET": "hf_PROBE123"}

    async def up() -> None:
        async with group_of({"policy": service}, logs=tmp_path / "logs", job="7", environ=environ):
            while not (tmp_path / "env").exists():
                await asyncio.sleep(0.05)

    asyncio.run(asyncio.wait_for(up(), 20))

    assert (tmp_path / "args").read_text().splitlines()[-2:] == ["serve", "4711"]
    assert "hf_PROBE123" not in (tmp_path / "args").read_text()
    assert "TOKEN=hf_PROBE123" in (tmp_path / "env").read_text()


@pytest.mark.timeout(120)
def test_a_service_that_dies_in_the_middle_is_started_again(tmp_path: Path) -> None:
    project = Project(tmp_path / "user", {"type": "local"})
    once = f'if mkdir {tmp_path}/once 2>/dev/null; then exec "$@" --exit-after=4; else exec "$@"; fi'
    project.config["services"]["policy"]["command"] = ["bash", "-c", once, "-", *project.service()["command"]]
    project.benchmark("a", tasks=8, num_samples_in_parallel=1)

    project.submit("--wait", timeout_s=90)

    assert "(restart 1)" in project.logs()
    assert project.status()["benchmarks"][0]["shards"][0]["sessions"] == 2


@pytest.mark.timeout(120)
def test_a_service_that_dies_more_often_than_it_may_ends_the_job(tmp_path: Path) -> None:
    project = Project(tmp_path / "user", {"type": "local"})
    project.config["services"]["policy"] = {**project.service(exit_after=3), "max_restarts": 0}
    project.benchmark("a", tasks=8, num_samples_in_parallel=1)

    project.submit()

    wait_for(lambda: "ended with exit code" in project.logs(), 60)
    assert "(restart" not in project.logs()

"""Every field outside of ``compute`` is seen where it acts: changing it changes the plan, the job or what the collector sends."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from collector.settings import RunSettings, StrictModel
from orchestrate.config.commands import placed
from orchestrate.config.compute import LocalCompute
from orchestrate.config.load import load_config, settings_of
from orchestrate.config.service_command import command_of, model_name
from orchestrate.config.services import CommandService, ExternalService, HealthCheck, VllmService
from orchestrate.config.submit import Benchmark, Driver, Job, Prepare, Requeue, SubmitConfig
from orchestrate.config.values import resolve_env
from orchestrate.jobs.requeue import JobRun, why_not_again
from orchestrate.services.group import group_of
from orchestrate.services.running import RunningService
from orchestrate.submission.datasets import prepare_commands
from tests.orchestrate.test_requeue_bounds import run as job_run

CONFIG: dict[str, Any] = {
    "services": {
        "c": {"type": "command", "command": ["serve"], "served_model_name": "c-model"},
        "v": {"type": "vllm", "model": "v-model"},
        "e": {"type": "external", "url": "http://e/v1", "served_model_name": "e-model"},
    },
    "compute": {"here": {"type": "local"}},
    "driver": {
        "policy_model": "e",
        "benchmarks": {"a": {"run": {"input_jsonl_fpath": "x", "verifier": {"type": "exact_match"}}}},
    },
    "job": {"output_path": "/runs"},
}
IN_A_CONTAINER: dict[str, Any] = {"policy_model": "e", "container": "image", "benchmarks": {"a": {"command": "run"}}}
#: Field to where it stands in the file and a value other than the default.
CHANGES: dict[type[StrictModel], dict[str, tuple[str, Any]]] = {
    CommandService: {
        "command": ("services.c.command", ["other"]), "served_model_name": ("services.c.served_model_name", "x"),
        "env": ("services.c.env", {"A": "lit:1"}), "cwd": ("services.c.cwd", "/tmp"), "port": ("services.c.port", 4711),
        "ready_timeout_s": ("services.c.ready_timeout_s", 5), "health_check": ("services.c.health_check", {"path": "/up"}),
        "stop_grace_s": ("services.c.stop_grace_s", 1), "max_restarts": ("services.c.max_restarts", 7),
        "container": ("services.c.container", "image"), "mounts": ("services.c", {"type": "command", "command": ["serve"], "served_model_name": "c-model", "container": "image", "mounts": ["/a"]}),
    },
    VllmService: {
        "model": ("services.v.model", "x"), "served_model_name": ("services.v.served_model_name", "x"),
        "tensor_parallel_size": ("services.v.tensor_parallel_size", 2), "pipeline_parallel_size": ("services.v.pipeline_parallel_size", 2),
        "trust_remote_code": ("services.v.trust_remote_code", True), "extra_args": ("services.v.extra_args", ["--x"]),
        "health_check": ("services.v.health_check", {"path": "/up"}),
    },
    ExternalService: {
        "url": ("services.e.url", "http://other/v1"), "served_model_name": ("services.e.served_model_name", "x"),
        "api_key_env": ("services.e.api_key_env", "HOME"), "ready_timeout_s": ("services.e.ready_timeout_s", 5),
    },
    Benchmark: {
        "shards": ("driver.benchmarks.a.shards", 3), "run": ("driver.benchmarks.a.run.limit", 3),
        "export": ("driver.benchmarks.a.export", {"atif": {}}), "requeue": ("driver.benchmarks.a.requeue", {"max_requeues": 1}),
        "command": ("driver.benchmarks.a", {"command": "run"}),
        "timeout_s": ("driver.benchmarks.a", {"command": "run", "timeout_s": 7}),
        "prepare": ("driver.benchmarks.a.prepare", {"command": "make"}),
    },
    Prepare: {"command": ("driver.benchmarks.a.prepare", {"command": "make"})},
    Requeue: {
        "max_requeues": ("driver.benchmarks.a.requeue", {"max_requeues": 1}),
        "max_walltime": ("driver.benchmarks.a.requeue", {"max_walltime": "1"}),
        "max_interruptions": ("driver.benchmarks.a.requeue", {"max_interruptions": 1}),
    },
    Driver: {
        "policy_model": ("driver.policy_model", "v"), "env": ("driver.env", {"A": "lit:1"}),
        "benchmarks": ("driver.benchmarks.a.run.num_repeats", 2),
        "container": ("driver", IN_A_CONTAINER), "mounts": ("driver", IN_A_CONTAINER | {"mounts": ["/a"]}),
    },
    Job: {
        "output_path": ("job.output_path", "/other"), "name": ("job.name", "x"), "pack": ("job.pack", 3),
        "pack_at_once": ("job.pack_at_once", 2),
    },
    LocalCompute: {
        "max_concurrent": ("compute.here.max_concurrent", 5), "max_processes": ("compute.here.max_processes", 5),
    },
}  # fmt: skip


def changed(path: str, value: Any) -> dict[str, Any]:
    data = deepcopy(CONFIG)
    *parents, last = path.split(".")
    node = data
    for key in parents:
        node = node[key]
    node[last] = value
    return data


def seen(data: dict[str, Any]) -> dict[str, Any]:
    """What jobs and the collector get to see of a configuration, through the functions that they call."""
    config = load_config(data, where=Path("x"), environ={}).config
    group = group_of(config.services, logs=Path("/logs"), job="7", environ={"HOME": "/h"})
    started = {name: service for name, service in config.services.items() if not isinstance(service, ExternalService)}
    requeue = config.driver.benchmarks["a"].requeue
    runs: list[JobRun] = [job_run(0), job_run(1), job_run(2)]
    return {
        "commands": {name: command_of(s, name=name, job="7", variables=s.env) for name, s in started.items()},
        "models": {name: model_name(s) for name, s in started.items()},
        "env": {name: resolve_env(s.env, {}, where="") for name, s in started.items()},
        "fixed": {name: s.port for name, s in started.items()},
        "waits": {name: s.ready_timeout_s for name, s in config.services.items()},
        "stops": {name: (s.stop_grace_s, s.max_restarts, s.cwd) for name, s in started.items()},
        "health": {name: _health(RunningService(name, s, log=Path("/l"), job="7", environ={})) for name, s in started.items()},
        "external": group.endpoint("e"),
        "run": placed(
            settings_of(config, "a", output=Path("x.jsonl")), config.driver, directory=Path("/runs/a"), job="7"
        ).model_dump(),
        "prepare": prepare_commands(config),
        "exports": config.exports_of("a"),
        "shards": config.driver.benchmarks["a"].shards,
        "again": [why_not_again(requeue, runs, "7", restarts) for restarts in range(4)],
        "driver": resolve_env(config.driver.env, {}, where=""),
        "job": (config.job.output_path, config.job.name, config.job.pack, config.job.pack_at_once),
        "slots": (config.the_compute.max_concurrent, getattr(config.the_compute, "max_processes", None)),
    }


def _health(service: RunningService) -> str | None:
    return service.service.health_check.path if service.service.health_check else None


CASES = [(model, field) for model, fields in CHANGES.items() for field in fields]


@pytest.mark.parametrize(("model", "field"), CASES, ids=[f"{model.__name__}.{field}" for model, field in CASES])
def test_a_field_that_is_changed_is_seen(model: type[StrictModel], field: str) -> None:
    assert seen(changed(*CHANGES[model][field])) != seen(CONFIG)


@pytest.mark.parametrize("model", list(CHANGES), ids=lambda model: model.__name__)
def test_no_field_is_left_out_of_this(model: type[StrictModel]) -> None:
    shared = set(CommandService.model_fields) if model is VllmService else set[str]()

    # Where a service runs is seen with node pools only: test_node_pools.py.
    assert set(CHANGES[model]) | {"type", "node_pool"} | shared >= set(model.model_fields)


def test_no_section_is_left_out_of_this() -> None:
    assert set(SubmitConfig.model_fields) == {"services", "compute", "driver", "job", "export"}
    assert set(HealthCheck.model_fields) == {"path"}


OWN = {"input_jsonl_fpath": "y", "prompt_config": {"user": "{q}"}, "responses_create_params": {"top_p": 0.5}, "limit": 3}
OWN |= {"num_repeats": 2, "num_repeats_add_seed": True, "agent": {"type": "openai_responses"}, "verifier": {"type": "number"}}
OWN |= {"num_samples_in_parallel": 3, "timeouts": {"connect_s": 3}, "retry": {"max_attempts": 9}, "dispatch_budget_s": 5}
OWN |= {"drain_margin_s": 5, "dispatch_longest_first": True, "durability": "flush", "resume_from_cache": False}
OWN |= {"allow_unsafe_resume": True}


@pytest.mark.parametrize("key", sorted(OWN))
def test_a_key_of_run_reaches_the_settings_of_the_collector(key: str) -> None:
    run = seen(changed(f"driver.benchmarks.a.run.{key}", OWN[key]))["run"]

    assert run[key] != seen(CONFIG)["run"][key]
    assert key in RunSettings.model_fields

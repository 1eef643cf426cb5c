"""Faults that people met in configurations: what YAML, Hydra and shells do to the unwary, one rule each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collector.errors import ConfigError
from orchestrate.config.load import load_config
from orchestrate.runs.directory import RunDir, read_plan
from tests.orchestrate.fake_slurm import FakeSlurm
from tests.orchestrate.fault_project import submit
from tests.orchestrate.project import Project


def test_b1_a_comma_is_a_comma_or_an_error_and_never_a_sweep(project: Project, fake: FakeSlurm) -> None:
    project.benchmark("a", tasks=1)
    value = "lit:mlx5_0:1,mlx5_3:1"

    bare = submit(project, fake, f"+driver.env.NCCL_IB_HCA={value}")
    quoted = submit(project, fake, f"+driver.env.NCCL_IB_HCA='{value}'", "--resolve-only")

    assert bare[0] == 2
    assert not project.runs.exists()
    assert value in quoted[1]


@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize(
    "overrides",
    [
        ("driver.benchmarks.a.shards=2", "++job.name=x=y"),
        ("++job.name=one", "++job.name=two"),
        ("~services", "~driver.policy_model"),
    ],
    ids=["a-value-with-=", "the-last-wins", "removals"],
)
def test_b4_overrides_mean_the_same_wherever_the_file_stands(
    project: Project, fake: FakeSlurm, overrides: tuple[str, ...], position: int
) -> None:
    project.benchmark("a", tasks=4, policy_base_url="http://x/v1") if "~services" in overrides else project.benchmark(
        "a", tasks=4
    )
    words = [*overrides[:position], str(project.write()), *overrides[position:]]
    first = [str(project.write()), *overrides]

    moved, usual = (project.gym("submit", *order, "--resolve-only", env=fake.env) for order in (words, first))

    assert (moved.returncode, moved.stdout, moved.stderr) == (usual.returncode, usual.stdout, usual.stderr)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"driver": {"benchmarks": {"a": {"requeu": {}}}}}, "driver.benchmarks.a.requeu: unknown key. Did you mean 'requeue'"),
        (
            {"driver": {"benchmarks": {"a": {"run": {"retry": {"max_retry": 0}}}}}},
            "driver.benchmarks.a.run.retry.max_retry: unknown key",
        ),
        ({"export": {"mlflw": {}}}, "mlflw"),
        ({"driver": {"shards": 3}}, "driver.shards: unknown key"),
        ({"services": {"policy": {"tensor_parallel_size": 2}}}, "services.policy.tensor_parallel_size: unknown key"),
    ],
)
def test_b5_a_misspelt_key_is_refused_and_nothing_is_submitted(
    project: Project, fake: FakeSlurm, change: dict[str, Any], told: str
) -> None:
    project.benchmark("a", tasks=1)
    merge(project.config, change)

    code, said = submit(project, fake)

    assert code == 2
    assert told in said
    assert not fake.jobs()


def merge(into: dict[str, Any], change: dict[str, Any]) -> None:
    for key, value in change.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = value


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, id="absent"), pytest.param(b"", id="empty"), pytest.param(b"- a\n", id="a-list"),
        pytest.param(b"a:\n\t- b\n", id="tabs"), pytest.param(b"job: {a: 1, a: 2}\n", id="duplicate-keys"),
        pytest.param(b"a: &a [*a]\n", id="a-loop"), pytest.param(b"a: b\n" * (1 << 20), id="five-megabytes"),
        pytest.param(b"driver: {benchmarks: {}}\n", id="no-benchmark"), pytest.param(b"driver: {benchmarks: null}\n", id="null"),
        pytest.param(b"\xff\xfe\x00", id="not-text"),
    ],
)  # fmt: skip
def test_b8_a_file_that_is_no_configuration_is_one_line(tmp_path: Path, project: Project, content: bytes | None) -> None:
    path = tmp_path / "x.yaml"
    if content is not None:
        path.write_bytes(content)

    done = project.gym("submit", str(path))

    assert done.returncode == (3 if content is None else 2)
    assert len(done.stderr.splitlines()) == 1
    assert not project.runs.exists()


@pytest.mark.parametrize(
    ("job", "benchmark", "exports"),
    [
        ({"atif": {"agent_version": "1"}}, {}, {"atif": {"agent_version": "1"}}),
        ({}, {"atif": {"agent_version": "2"}}, {"atif": {"agent_version": "2"}}),
        ({"atif": {"agent_version": "1"}}, {"atif": {"agent_version": "2"}}, {"atif": {"agent_version": "2"}}),
        ({"atif": {"agent_version": "1"}}, {"atif": None}, {}),
    ],
)
def test_b9_a_configured_export_reaches_the_plan(
    project: Project, fake: FakeSlurm, job: dict[str, Any], benchmark: dict[str, Any], exports: dict[str, Any]
) -> None:
    project.benchmark("a", tasks=1)
    project.config["export"] = job
    project.config["driver"]["benchmarks"]["a"]["export"] = benchmark
    submit(project, fake)

    assert read_plan(RunDir(project.run_dir)).benchmark("a").export == exports


@pytest.mark.parametrize("key", ["max_retries", "timeout", "concurrency"])
def test_b9_a_name_that_no_setting_has_is_not_swallowed(key: str) -> None:
    data = {
        "compute": {"here": {"type": "local"}},
        "driver": {"benchmarks": {"a": {"run": {"input_jsonl_fpath": "x", "verifier": {"type": "exact_match"}, key: 3}}}},
        "job": {"output_path": "/x"},
    }

    with pytest.raises(ConfigError, match=f"driver.benchmarks.a.run.{key}: unknown key"):
        load_config(data, where=Path("x"), environ={})

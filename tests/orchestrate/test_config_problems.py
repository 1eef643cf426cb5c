"""What a submit YAML may say, and that every problem in it is told in one line before anything exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.errors import ConfigError
from orchestrate.config.nemo_gym import from_nemo_gym
from orchestrate.submission.checks import check_loaded
from tests.orchestrate.project import Project
from tests.orchestrate.yaml_problems import WHERE, config, load, problem


def test_the_policy_model_reaches_every_run() -> None:
    settings = load(config()).runs["math"]

    assert settings.policy_model_name == "org/m"
    assert settings.retry.max_interruptions == 20


def test_what_a_run_says_of_interruptions_wins() -> None:
    data = config()
    data["driver"]["benchmarks"]["math"]["run"]["retry"] = {"max_interruptions": 3}

    assert load(data).runs["math"].retry.max_interruptions == 3


def test_scratch_keys_are_no_settings() -> None:
    assert load({**config(), "_anything": {"x": 1}}).config.driver.policy_model == "m"


def test_every_problem_is_in_one_message_with_the_nearest_name() -> None:
    data = config()
    data["compute"]["hpc"]["acount"] = "x"
    data["driver"]["benchmarks"]["math"]["shrads"] = 3
    data["driver"]["benchmarks"]["math"]["run"]["num_repeat"] = 2
    data["services"]["m"]["ready_timeout"] = 5
    data["driver"]["policy_model"] = "n"

    message = problem(data)

    assert "compute.hpc.acount: unknown key. Did you mean 'account'?" in message
    assert "driver.benchmarks.math.shrads: unknown key. Did you mean 'shards'?" in message
    assert "driver.benchmarks.math.run.num_repeat: unknown key. Did you mean 'num_repeats'?" in message
    assert "services.m.ready_timeout: unknown key. Did you mean 'ready_timeout_s'?" in message
    assert "driver.policy_model: no service 'n'" in message


def test_a_parameter_of_the_request_is_shown_its_section() -> None:
    data = config()
    data["driver"]["benchmarks"]["math"]["run"]["max_output_tokens"] = 512

    told = "driver.benchmarks.math.run.max_output_tokens: unknown key. Write it in responses_create_params"
    assert told in problem(data)


@pytest.mark.parametrize("path", ["requeue.max_requeus", "run.retry.max_attempt", "run.timeouts.request"])
def test_a_misspelt_nested_key_is_named_with_its_whole_path(path: str) -> None:
    data = config()
    place = data["driver"]["benchmarks"]["math"]
    *parents, last = path.split(".")
    for parent in parents:
        place = place.setdefault(parent, {})
    place[last] = 1

    assert f"driver.benchmarks.math.{path}: unknown key. Did you mean" in problem(data)


def test_an_unknown_service_type_lists_the_choices() -> None:
    data = config()
    data["services"]["m"] = {"type": "sglang", "model": "x"}

    assert "services.m.type: unknown type. Choose from: command, vllm, external" in problem(data)


@pytest.mark.parametrize("key", ["policy_model_name", "policy_base_url", "policy_api_key"])
def test_a_model_named_twice_is_refused(key: str) -> None:
    data = config()
    data["driver"]["benchmarks"]["math"]["run"][key] = "x"

    message = problem(data)

    assert f"run.{key}" in message
    assert "driver.policy_model" in message


@pytest.mark.parametrize(
    ("name", "told"),
    [
        pytest.param("array", "is set by the submission", id="own-flag"),
        pytest.param("--mem", "without dashes", id="with-dashes"),
    ],
)
def test_extra_args_cannot_break_the_submission(name: str, told: str) -> None:
    data = config()
    data["compute"]["hpc"]["extra_args"] = {name: "1"}

    assert told in problem(data)


def test_compute_needs_exactly_one_entry() -> None:
    data = config()
    data["compute"]["laptop"] = {"type": "local"}

    assert "compute: needs exactly one entry, not 2" in problem(data)
    assert "compute: needs exactly one entry, not 0" in problem({**config(), "compute": {}})


@pytest.mark.parametrize("benchmarks", [{}, None], ids=["empty", "null"])
def test_a_run_needs_a_benchmark(benchmarks: object) -> None:
    data = config()
    data["driver"]["benchmarks"] = benchmarks

    assert "driver.benchmarks" in problem(data)


def test_names_that_differ_in_case_only_are_refused() -> None:
    data = config()
    data["driver"]["benchmarks"]["MATH"] = data["driver"]["benchmarks"]["math"]

    assert "cannot be told from" in problem(data)


def test_an_export_of_one_benchmark_overrides_the_jobs() -> None:
    data = config()
    data["export"] = {"atif": {"a": 1, "b": 2}, "wandb": {"project": "p"}}
    data["driver"]["benchmarks"]["math"]["export"] = {"atif": {"b": 3}, "wandb": None}

    assert load(data).config.exports_of("math") == {"atif": {"a": 1, "b": 3}}


def test_a_misspelt_key_of_a_prompt_is_named_with_the_right_one(tmp_path: Path) -> None:
    project = Project(tmp_path, {"type": "local"})
    project.benchmark("math", prompt_config={"usr": "{question}"})

    said = project.submit(code=2)

    assert "driver.benchmarks.math.run.prompt_config.usr: unknown key. Did you mean 'user'?" in said
    assert "lax-or-strict" not in said


def test_a_wrong_export_is_told_under_the_key_that_it_stands_at() -> None:
    data = config()
    data["driver"]["benchmarks"]["math"]["export"] = {"cvs": {}, "csv": {"colour": "red"}}
    data["export"] = {"mlfow": {}, "parquet": None, "atif": {"agent": "x"}}

    with pytest.raises(ConfigError) as caught:
        check_loaded(load(data), where=WHERE)

    found = str(caught.value)
    assert "driver.benchmarks.math.export.cvs: unknown exporter 'cvs'. Did you mean 'csv'?" in found
    assert "driver.benchmarks.math.export.csv.colour: unknown key" in found
    assert " export.mlfow: unknown exporter 'mlfow'. Did you mean 'mlflow'?" in found
    assert "; export.atif.agent_version: is missing" in found
    assert "math: " not in found


@pytest.mark.parametrize("key", ["config_paths", "benchmark", "resources_server", "environment", "split", "model_type"])
def test_a_key_that_starts_servers_elsewhere_is_told_what_does_here(key: str) -> None:
    data = config()
    data["driver"]["benchmarks"]["math"]["run"][key] = "x"

    assert f"driver.benchmarks.math.run.{key}: is not supported: servers are not started; NeMo Gym's gym env start" in problem(
        data
    )
    assert from_nemo_gym({key: ["a.yaml"]}).problems[0].startswith(f"{key}: is not supported: servers are not started")

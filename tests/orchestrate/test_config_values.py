"""Values of a submit YAML that nothing can work with: each is refused under its key, and no secret is shown."""

from __future__ import annotations

import pytest

from tests.orchestrate.yaml_problems import config, load, problem


@pytest.mark.parametrize(
    ("value", "told"),
    [
        pytest.param(43200, "quote it", id="yaml-read-a-clock-as-a-number"),
        pytest.param("1:30", "is not a walltime", id="minutes-or-hours"),
        pytest.param("0:240:0", "is not a walltime", id="too-many-minutes"),
        pytest.param("2-12", "is not a walltime", id="days-and-hours-only"),
        pytest.param("240", "is not a walltime", id="no-unit"),
        pytest.param("0:00:00", "zero", id="nothing"),
        pytest.param(None, "HH:MM:SS", id="null"),
    ],
)
def test_a_walltime_that_can_be_misread_is_refused(value: object, told: str) -> None:
    data = config()
    data["compute"]["hpc"]["walltime"] = value

    assert told in problem(data)


def test_a_key_in_the_file_is_refused() -> None:
    data = config()
    del data["driver"]["policy_model"]
    data["driver"]["benchmarks"]["math"]["run"] |= {"policy_base_url": "http://h/v1", "policy_api_key": "sk-secret"}

    message = problem(data)

    assert "host:VARIABLE" in message
    assert "sk-secret" not in message


@pytest.mark.parametrize(
    "url", ["http://user:pw@h/v1", "http://h/v1?key=secret", "h:8000", "http://h:99999/v1", "http://h:x/v1"]
)
def test_an_external_url_carries_no_secret(url: str) -> None:
    data = config()
    data["services"]["m"] = {"type": "external", "url": url, "served_model_name": "m"}

    assert "services.m.url" in problem(data)


@pytest.mark.parametrize(
    "url",
    [
        "http://u:sekret1@h/v1",
        "http://sekret1@h/v1",
        "http://h/v1?key=sekret1",
        "http://sekret1@\u2100/",
        "http://h:sekret1/v1",
    ],
)
def test_a_model_url_with_a_secret_is_refused_without_it(url: str) -> None:
    data = config()
    del data["driver"]["policy_model"]
    data["driver"]["benchmarks"]["math"]["run"]["policy_base_url"] = url

    message = problem(data)

    assert "driver.benchmarks.math.run.policy_base_url: " in message
    assert "sekret1" not in message


def test_an_env_value_needs_a_prefix_and_its_variable() -> None:
    data = config()
    data["services"]["m"]["env"] = {"A": "plain"}
    assert "services.m.env.A: must start with lit:, host: or runtime:" in problem(data)

    data["services"]["m"]["env"] = {"A": "host:HF_TOKEN", "B": "lit:x", "C": "runtime:NODE_ONLY"}
    assert "services.m.env: the submitting shell has no variable HF_TOKEN" in problem(data)
    assert load(data, HF_TOKEN="t").config.services["m"].type == "command"


@pytest.mark.parametrize("url", ["ftp://user:hunter2@host/v1", "user:hunter2@host", "http://user:hunter2@[host/v1"])
def test_a_url_that_cannot_be_used_is_not_shown(url: str) -> None:
    data = config()
    data["services"]["m"] = {"type": "external", "url": url, "served_model_name": "x"}

    message = problem(data)

    assert "services.m.url: " in message
    assert "hunter2" not in message


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        pytest.param("max_output_tokens", -3, "must be at least 1, not -3", id="tokens"),
        pytest.param("max_output_tokens", 0, "must be at least 1, not 0", id="no-tokens"),
        pytest.param("temperature", -0.5, "must be at least 0, not -0.5", id="temperature"),
        pytest.param("temperature", float("inf"), "must be a finite number, not inf", id="endless"),
        pytest.param("temperature", 10**400, "must be a finite number, not 1000", id="beyond-all-floats"),
        pytest.param("top_p", 1.5, "must be at most 1, not 1.5", id="top-p"),
    ],
)
def test_a_parameter_that_no_server_can_honour_is_refused_under_its_key(key: str, value: float, told: str) -> None:
    data = config()
    data["driver"]["benchmarks"]["math"]["run"]["responses_create_params"] = {key: value}

    assert f"driver.benchmarks.math.run.responses_create_params: {key} {told}" in problem(data)


@pytest.mark.parametrize("key", ["job.output_path", "driver.benchmarks.math.run.input_jsonl_fpath"])
def test_an_empty_path_is_not_the_current_directory(key: str) -> None:
    data = config()
    *sections, name = key.split(".")
    place = data
    for section in sections:
        place = place[section]
    place[name] = ""

    assert f"{key}: must not be empty" in problem(data)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        pytest.param("services", [], "services: must be keys with values.", id="services"),
        pytest.param("compute", [], "compute: must be keys with values.", id="compute"),
        pytest.param("job", [], "job: must be keys with values.", id="section"),
        pytest.param("driver.benchmarks", [], "driver.benchmarks: must be keys with values.", id="benchmarks"),
        pytest.param(
            "driver.benchmarks.math.run.prompt_config",
            ["a"],
            "driver.benchmarks.math.run.prompt_config: must be a path, written as text.",
            id="path",
        ),
    ],
)
def test_a_value_of_a_wrong_form_is_one_problem_in_plain_words(key: str, value: object, told: str) -> None:
    data = config()
    *sections, name = key.split(".")
    place = data
    for section in sections:
        place = place[section]
    place[name] = value

    assert problem(data) == f"submit.yaml: {told}"

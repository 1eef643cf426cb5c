"""Whose work may be taken up again: the expected outcomes 18 to 22, and what a configuration may and may not change."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from collector.agents.nemo_gym import head
from collector.errors import ConfigError, IdentityError, UnavailableError
from tests.nemo.bench import NemoBench
from tests.support import testkit
from tests.support.nemo_stub import AGENT, ENVIRONMENT, NemoStub
from tests.support.processes import wait_for

Change = Callable[[dict[str, Any]], object]


def model(config: dict[str, Any]) -> dict[str, Any]:
    return config["policy_model"]["responses_api_models"]["vllm_model"]


def verifier(config: dict[str, Any]) -> dict[str, Any]:
    return config["math"]["resources_servers"]["math"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(lambda c: c.update(policy_model_name="org/other"), "org/other", id="n18-model-by-reference"),
        pytest.param(lambda c: model(c).update(model="org/other"), "policy_model.settings.model", id="n18-model"),
        pytest.param(lambda c: model(c).update(sampling={"temperature": 1}), "sampling.temperature", id="sampling"),
        pytest.param(
            lambda c: verifier(c).update(tolerance=0.5), "math.settings.tolerance: saved 0.01, now 0.5", id="verifier"
        ),
        pytest.param(lambda c: verifier(c).update(RERUN_INCOMPLETE=True), "RERUN_INCOMPLETE", id="n20-a-task's-own"),
        pytest.param(lambda c: verifier(c).update(nested={"host": "x"}), "nested.host", id="a-nested-key-of-that-name"),
        pytest.param(
            lambda c: c[AGENT]["responses_api_agents"].update(other_agent=c[AGENT]["responses_api_agents"].pop("simple_agent")),
            "implementation",
            id="another-implementation",
        ),
    ],
)
def test_another_experiment_is_refused_before_anything_is_asked_or_changed(
    bench: NemoBench, stub: NemoStub, change: Change, words: str
) -> None:
    bench.tasks({}, {"stub": {"mode": "500"}})
    bench.fill(retry={"max_attempts": 1})
    before, asked = bench.files(), len(stub.runs)
    change(stub.config)
    head.forget()

    with pytest.raises(IdentityError) as caught:
        bench.fill(retry={"max_attempts": 5})

    assert words in str(caught.value)
    assert bench.files() == before
    assert len(stub.runs) == asked


def move(config: dict[str, Any]) -> None:
    model(config).update(host="10.1.2.3", port=4242, num_workers=8, base_url="http://other/v1", api_key="another-secret")
    config.update(policy_base_url="http://elsewhere/v1", policy_api_key="third-secret", port_range_low=30000)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(move, id="n19-addresses-and-keys"),
        pytest.param(lambda c: c.update(RERUN_INCOMPLETE=True), id="n20-at-the-top"),
        pytest.param(lambda c: model(c).update(default_headers={"Authorization": "Bearer x"}), id="n19-header"),
        pytest.param(lambda c: c.update(unused={"resources_servers": {"x": {"y": "${nowhere}"}}}), id="a-block-no-row-reaches"),
    ],
)
def test_the_same_experiment_is_taken_up_wherever_it_runs(bench: NemoBench, stub: NemoStub, change: Change) -> None:
    model(stub.config)["default_headers"] = {}
    bench.tasks({}, {"stub": {"mode": "500", "times": 1}})
    bench.fill(retry={"max_attempts": 1})
    change(stub.config)
    head.forget()

    states = bench.fill(retry={"max_attempts": 5})

    assert states == {"measured": 2}
    assert stub.attempts_of(0) == [0]


def test_a_reporting_switch_is_no_other_experiment(bench: NemoBench) -> None:
    """Number 21: counting zeros is a matter of aggregation here and no key of a run; what a run has of that sort is free."""
    bench.tasks({})
    bench.fill()

    assert bench.fill(disable_health_check=True, interleave_repeats=True, timeouts={"attempt_s": 5}) == {"measured": 1}


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        pytest.param("policy_model", "server 'policy_model' is not in the running configuration", id="the-model"),
        pytest.param("math", "server 'math' is not in the running configuration", id="the-verifier"),
        pytest.param(AGENT, f"agent {AGENT!r} is not in the running configuration", id="the-agent"),
    ],
)
def test_a_server_that_the_rows_need_and_nobody_runs_is_an_error(
    bench: NemoBench, stub: NemoStub, gone: str, words: str
) -> None:
    """Number 22."""
    bench.tasks({}, {"stub": {"mode": "500"}})
    bench.fill(retry={"max_attempts": 1})
    before = bench.files()
    del stub.config[gone]
    head.forget()

    with pytest.raises(ConfigError, match=words):
        bench.fill(retry={"max_attempts": 5})

    assert bench.files() == before


def test_no_secret_of_the_servers_is_written(bench: NemoBench, stub: NemoStub) -> None:
    model(stub.config)["extra"] = {"judge_token": "hidden-token", "url": "http://user:hidden-word@x/"}
    model(stub.config)["words"] = ["--key=secret-of-the-policy", "sk-hidden-by-its-form", "http://x/?sig=hidden-query"]
    bench.tasks({})

    bench.fill()

    written = b"".join(bench.files().values())
    assert b"org/model" in written
    for secret in (b"secret-of-the-policy", b"hidden-token", b"hidden-word", b"by-its-form", b"hidden-query"):
        assert secret not in written


def test_the_head_server_is_asked_once_in_a_run(bench: NemoBench, stub: NemoStub) -> None:
    bench.tasks({}, {})

    bench.fill()

    assert stub.asked["GET /global_config_dict_yaml"] == 1


def test_a_head_server_that_is_not_there_is_one_line(bench: NemoBench) -> None:
    bench.tasks({})

    with pytest.raises(UnavailableError) as caught:
        bench.prepare(agent={"head_server": {"host": "127.0.0.1", "port": 1}, "head_timeout_s": 2})

    assert str(caught.value).startswith("http://127.0.0.1:1/global_config_dict_yaml: the head server does not answer: ")
    assert "agent.config_file" in str(caught.value)


@pytest.mark.parametrize("text", ["key: [secret-word", "- secret-word", "secret-word: *nowhere"])
def test_a_configuration_that_cannot_be_read_is_one_line_without_its_text(
    bench: NemoBench, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("NEMO_GYM_CONFIG_DICT", text)
    bench.tasks({})

    with pytest.raises(ConfigError, match="NEMO_GYM_CONFIG_DICT: not a configuration") as caught:
        bench.prepare()

    assert "secret-word" not in str(caught.value)


def test_the_environment_gives_the_configuration_without_a_head_server(
    bench: NemoBench, stub: NemoStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEMO_GYM_CONFIG_DICT", yaml.safe_dump(stub.config))
    bench.tasks({})

    assert bench.fill() == {"measured": 1}
    assert stub.asked["GET /global_config_dict_yaml"] == 0


def test_a_run_can_be_prepared_from_a_saved_configuration_and_the_running_one_must_be_it(
    bench: NemoBench, stub: NemoStub, tmp_path: Path
) -> None:
    saved = tmp_path / "servers.yaml"
    saved.write_text(json.dumps(yaml.safe_dump(stub.config)))
    bench.tasks({})
    run = bench.prepare(agent={"config_file": str(saved)})
    assert stub.asked["GET /global_config_dict_yaml"] == 0
    assert ENVIRONMENT in run.manifest.config["agent"]["servers"]
    bench.fill(agent={"config_file": str(saved)}, dispatch_budget_s=0)
    journal = bench.artifacts.journal.read_bytes()
    stub.config["policy_model_name"] = "org/other"

    with pytest.raises(IdentityError, match=r"policy_model differ"):
        bench.fill(agent={"config_file": str(saved)})

    assert stub.runs == []
    assert bench.artifacts.journal.read_bytes() == journal


def test_a_killed_collector_is_taken_up_and_nothing_recorded_is_asked_again(bench: NemoBench, stub: NemoStub) -> None:
    bench.tasks(*({"stub": {"delay": 0.05}} for _ in range(40)))
    words = ["--no-serve", "--input", bench.dataset, "--output", bench.artifacts.rollouts, "--concurrency", "4"]
    words += ["+head_server.host=127.0.0.1", f"+head_server.port={stub.head_port}"]
    command = [sys.executable, "-m", "orchestrate.cli.main", "eval", "run", *map(str, words)]
    environ = {**os.environ, **testkit.environment()}
    process = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: len(stub.runs) >= 15, 30)
    process.send_signal(signal.SIGKILL)
    process.wait()
    recorded = {row["_ng_task_index"] for row in bench.results()}
    before = len(stub.runs)

    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert sorted(row["_ng_task_index"] for row in bench.results()) == list(range(40))
    assert 0 < len(recorded) < 40
    assert recorded.isdisjoint({body["_ng_task_index"] for body in stub.runs[before:]})
    for task in range(40):
        assert stub.attempts_of(task) == list(range(len(stub.attempts_of(task))))

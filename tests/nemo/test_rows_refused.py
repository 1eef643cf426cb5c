"""Rows and settings that NeMo Gym's servers cannot be sent: told in one line before anything exists."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from collector.errors import ConfigError, DatasetError, GymEvalError, StorageError
from tests.nemo.asked import ASKED, with_agents
from tests.nemo.bench import NemoBench
from tests.support.nemo_stub import AGENT, ENVIRONMENT, NemoStub

OWN = {"agent_ref": {"name": AGENT}}


@pytest.mark.parametrize(
    ("row", "changes", "error", "words"),
    [
        pytest.param({}, {}, DatasetError, "names neither agent_ref nor task_source", id="no-agent"),
        pytest.param(
            {"agent_ref": {"name": "math_simple_agnt"}}, {}, ConfigError, f"Did you mean '{AGENT}'", id="unknown-agent"
        ),
        pytest.param({"agent_ref": {"name": "math"}}, {}, ConfigError, "is a resources_server", id="no-agent-of-that-name"),
        pytest.param({"task_source": "maths"}, {}, ConfigError, "Did you mean 'math'", id="unknown-source"),
        pytest.param({"task_source": "policy_model"}, {}, ConfigError, "neither an agent nor a", id="source-of-another-kind"),
        pytest.param(OWN, {"num_repeats": {"x": 2}}, DatasetError, "num_repeats has no entry for", id="no-repeats"),
        pytest.param(
            {**OWN, "_ng_attempt_index": 1}, {}, DatasetError, "reserved keys: _ng_attempt_index", id="a-collector's-key"
        ),
        pytest.param({**OWN, "_ng_rollout_id": "a b"}, {}, DatasetError, "_ng_rollout_id 'a b'", id="id-with-a-blank"),
        pytest.param({**OWN, "_ng_rollout_id": "x-a2"}, {}, DatasetError, "ends as attempts do", id="id-like-an-attempt"),
        pytest.param(
            {**OWN, "_ng_rollout_id": "0-1"}, {}, DatasetError, "looks like a task and its repeat", id="id-like-a-place"
        ),
        pytest.param({**OWN, "_ng_task_index": -1}, {}, DatasetError, "_ng_task_index is -1", id="negative-number"),
        pytest.param({**OWN, "_ng_task_index": 1 << 31}, {}, DatasetError, "_ng_task_index is 2147483648", id="huge-number"),
        pytest.param({"task_source": ["math"]}, {}, DatasetError, "task_source is no text", id="source-that-is-a-list"),
        pytest.param(
            {"agent_ref": AGENT, "task_source": "math"},
            {"agent": {"fan_out": {"math": [AGENT]}}},
            DatasetError,
            "agent_ref is no object",
            id="agent-by-its-bare-name",
        ),
        pytest.param(
            {**OWN, "responses_create_params": {"input": "x"}},
            {"prompt_config": {"user": "y"}},
            DatasetError,
            "use one of them",
            id="input-and-prompt",
        ),
        pytest.param(OWN, {"verifier": "number"}, ConfigError, "leave 'number' out", id="a-verifier-beside-the-servers'"),
        pytest.param(
            {"task_id": {"taskset": "t", "task_id": "1"}, "task_input": {}},
            {},
            DatasetError,
            "no route for taskset 't'",
            id="no-route",
        ),
    ],
)
def test_a_row_that_cannot_be_sent_is_one_clear_line_before_anything_exists(
    bench: NemoBench, row: dict[str, Any], changes: dict[str, Any], error: type[GymEvalError], words: str
) -> None:
    bench.write({**ASKED, **row})

    with pytest.raises(error) as caught:
        bench.prepare(**changes)

    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not bench.files()


def test_an_agent_with_two_environment_servers_is_no_address(bench: NemoBench, stub: NemoStub) -> None:
    stub.config["second"] = stub.config[ENVIRONMENT]
    bench.tasks({})

    with pytest.raises(ConfigError, match="several environment servers: math_environment_server, second"):
        bench.prepare()


def test_a_source_of_two_agents_wants_a_choice(bench: NemoBench, stub: NemoStub) -> None:
    with_agents(stub, "a")
    bench.write({**ASKED, "task_source": "math"})

    with pytest.raises(ConfigError, match=r"2 agents use resources server 'math': a, math_simple_agent. Name one: agent_map="):
        bench.prepare()


def test_counted_and_given_task_numbers_may_not_meet(bench: NemoBench) -> None:
    bench.tasks({}, {"_ng_task_index": 0})

    with pytest.raises(DatasetError, match="Give every row its number, or none"):
        bench.prepare()


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        pytest.param({"agent_name": "a", "agent_map": {"_default": "b"}}, "set one of them", id="two-defaults"),
        pytest.param({"fan_out": {"a": []}}, "fan_out.a is empty", id="no-targets"),
        pytest.param({"fan_out": {"a": ["b", "b"]}}, "names an agent twice", id="one-target-twice"),
        pytest.param({"environment_routing_mode": "legacy"}, "needs environment_server_name", id="legacy-without-a-server"),
        pytest.param({"environment_routing_mode": "taskset"}, "needs environment_server_routes", id="taskset-without-routes"),
        pytest.param({"agnet_name": "a"}, "agnet_name: unknown key", id="misspelt"),
    ],
)
def test_settings_that_contradict_themselves_are_refused(bench: NemoBench, agent: dict[str, Any], words: str) -> None:
    bench.tasks({})

    with pytest.raises(ConfigError, match=words):
        bench.prepare(agent=agent)


def test_an_explicit_id_may_occur_once(bench: NemoBench) -> None:
    bench.tasks({"_ng_rollout_id": "x"}, {"_ng_rollout_id": "x"})

    with pytest.raises(DatasetError, match="'x' occurs twice"):
        bench.prepare()


def test_a_full_temporary_directory_is_told_in_one_line(bench: NemoBench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.tasks({})
    # The row is so short that only the last write of the buffer meets the full disk.
    monkeypatch.setattr(tempfile, "TemporaryFile", partial(Path("/dev/full").open, "w+b"))

    with pytest.raises(StorageError, match=r"no temporary file can be written there: No space left on device"):
        bench.inventory()

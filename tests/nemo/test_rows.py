"""Which rows are made of a dataset: routed, copied, repeated, numbered and seeded by the rules of NeMo Gym 0.7.0."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from collector.agents.nemo_gym.materialize import NemoGymRows
from collector.agents.nemo_gym.settings import NemoGymSettings
from collector.errors import ConfigError
from tests.nemo.asked import ASKED, with_agents
from tests.nemo.bench import NemoBench
from tests.support.nemo_stub import AGENT, ENVIRONMENT, NemoStub


def agents(rows: list[dict[str, Any]]) -> list[str]:
    return [row["agent_ref"]["name"] for row in rows]


def places(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows]


@pytest.mark.parametrize(
    ("row", "settings", "expected"),
    [
        pytest.param({"agent_ref": {"name": "a"}}, {}, "a", id="the-row's-own-agent"),
        pytest.param({}, {"agent_name": "b"}, "b", id="the-default"),
        pytest.param({"agent_ref": {"name": "a"}}, {"agent_name": "b"}, "b", id="the-default-over-the-row's-own"),
        pytest.param(
            {"agent_ref": {"name": "a"}}, {"agent_map": {"a": "c", "_default": "b"}}, "c", id="the-map-over-the-default"
        ),
        pytest.param({"task_source": "s"}, {"agent_map": {"s": "c"}}, "c", id="the-map-by-source"),
        pytest.param(
            {"agent_ref": {"name": "a"}, "task_source": "s"},
            {"agent_map": {"s": "c", "a": "b"}},
            "b",
            id="the-agent's-entry-first",
        ),
        pytest.param({"task_source": "a"}, {}, "a", id="a-source-that-is-an-agent"),
    ],
)
def test_a_row_goes_to_the_agent_that_the_first_rule_names(
    bench: NemoBench, stub: NemoStub, row: dict[str, Any], settings: dict[str, Any], expected: str
) -> None:
    with_agents(stub, "a", "b", "c")
    bench.write({**ASKED, **row})

    assert agents(bench.inventory(agent=settings)) == [expected] or row == {"task_source": "a"}
    assert bench.prepare(agent=settings).manifest.config["agent"]["targets"] == [f"{expected}_environment"]


def test_a_source_is_resolved_to_the_only_agent_that_uses_it(bench: NemoBench) -> None:
    bench.write({**ASKED, "task_source": "math"})

    assert agents(bench.inventory()) == [AGENT]


def test_a_source_goes_to_the_agent_that_its_datasets_name(bench: NemoBench, stub: NemoStub) -> None:
    with_agents(stub, "other")
    stub.config["math"]["resources_servers"]["math"]["datasets"] = [{"name": "d", "agent": "other"}]
    bench.write({**ASKED, "task_source": "math"})

    assert agents(bench.inventory()) == ["other"]


def test_every_listed_agent_runs_a_row_once_and_repeats_apply_to_each(bench: NemoBench, stub: NemoStub) -> None:
    with_agents(stub, "a", "b")
    bench.write({**ASKED, "agent_ref": {"name": AGENT}})

    made = bench.inventory(agent={"fan_out": {AGENT: ["a", "b"]}}, num_repeats={"a": 2, AGENT: 1})

    assert agents(made) == ["a", "a", "b"]
    assert places(made) == [(0, 0), (0, 1), (0, 2)]


def test_identical_lines_are_one_task_and_count_up_its_repeats(bench: NemoBench) -> None:
    same = {**ASKED, "agent_ref": {"name": AGENT}}
    bench.write(same, {**same, "n": 1}, same)

    assert places(bench.inventory(num_repeats=2)) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]


def test_what_rows_weigh_is_not_kept_in_memory(bench: NemoBench) -> None:
    maker = NemoGymRows(NemoGymSettings.model_validate(bench.settings().agent), bench.settings(), None)
    tracemalloc.start()
    try:
        for number in range(64):
            row = {**ASKED, "agent_ref": {"name": AGENT}, "n": number, "text": "x" * 100_000}
            assert len(list(maker.rows_of(json.dumps(row).encode(), row))) == 1
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # The rows weigh 6.4 MB together.
    assert held < 1_000_000


def test_given_task_numbers_are_kept(bench: NemoBench) -> None:
    bench.tasks({"_ng_task_index": 7}, {"_ng_task_index": 3})

    assert places(bench.inventory(num_repeats=2)) == [(3, 0), (3, 1), (7, 0), (7, 1)]


def test_an_explicit_id_stays_unique_over_repeats(bench: NemoBench) -> None:
    bench.tasks({"_ng_rollout_id": "first"})

    assert [row["_ng_rollout_id"] for row in bench.inventory()] == ["first"]
    assert [row["_ng_rollout_id"] for row in bench.inventory(num_repeats=2)] == ["first-r0", "first-r1"]


def test_parameters_of_the_run_replace_those_of_a_row_one_level_deep(bench: NemoBench) -> None:
    params = {"input": "?", "metadata": {"a": "1"}, "temperature": 0.3}
    bench.tasks({"responses_create_params": params})

    (row,) = bench.inventory(responses_create_params={"metadata": {"b": "2"}, "max_output_tokens": 9})

    expected = {"input": "?", "metadata": {"b": "2"}, "temperature": 0.3, "max_output_tokens": 9}
    assert row["responses_create_params"] == expected


def test_the_seed_is_the_repeat_inside_the_text_of_extra_body(bench: NemoBench) -> None:
    bench.tasks({"responses_create_params": {"input": "?", "metadata": {"extra_body": '{"top_k": 4}'}}})

    made = bench.inventory(num_repeats=2, num_repeats_add_seed=True)

    bodies = [json.loads(row["responses_create_params"]["metadata"]["extra_body"]) for row in made]
    assert bodies == [{"top_k": 4, "seed": 0}, {"top_k": 4, "seed": 1}]


def test_a_prompt_builds_the_input_of_a_row(bench: NemoBench) -> None:
    bench.tasks({"responses_create_params": {"temperature": 0.0}, "question": "2+3?"})

    (row,) = bench.inventory(prompt_config={"user": "{question}", "system": "Short."})

    expected = [{"role": "system", "content": "Short."}, {"role": "user", "content": "2+3?"}]
    assert row["responses_create_params"] == {"temperature": 0.0, "input": expected}


def test_skills_are_named_by_their_content_on_every_row(bench: NemoBench, tmp_path: Path) -> None:
    skill = tmp_path / "skills" / "adding"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: adding\ndescription: adds\nmetadata: {version: '2'}\n---\nAdd.\n")
    bench.tasks({})

    (first,) = bench.inventory(agent={"skills": {"path": str(skill.parent)}})
    (skill / "more.txt").write_text("x")
    (second,) = bench.inventory(agent={"skills": {"path": str(skill.parent)}})

    assert first["skills_ref"]["skills"] == [{"name": "adding", "description": "adds", "version": "2"}]
    assert len(first["skills_ref"]["hash"]) == 12
    assert first["skills_ref"]["hash"] != second["skills_ref"]["hash"]


def test_repeats_start_round_by_round_when_asked_for(bench: NemoBench, stub: NemoStub) -> None:
    bench.tasks({}, {})

    bench.fill(num_repeats=2, interleave_repeats=True)

    assert places(stub.runs) == [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_legacy_mode_sends_every_flat_row_to_one_environment_server(bench: NemoBench, stub: NemoStub) -> None:
    bench.write(ASKED)

    states = bench.fill(agent={"environment_routing_mode": "legacy", "environment_server_name": ENVIRONMENT})

    assert states == {"measured": 1}
    assert (stub.runs[0]["_ng_environment_server"], stub.runs[0]["agent_ref"]) == (ENVIRONMENT, {"name": AGENT})


def test_a_configuration_without_environment_servers_is_asked_at_its_agents(bench: NemoBench, stub: NemoStub) -> None:
    del stub.config[ENVIRONMENT]
    bench.tasks({})

    states = bench.fill()

    assert states == {"measured": 1}
    assert "_ng_environment_server" not in bench.results()[0]


def test_a_dataset_is_found_in_the_extra_roots(bench: NemoBench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bench.tasks({})
    (tmp_path / "root" / "data").mkdir(parents=True)
    bench.dataset.rename(tmp_path / "root" / "data" / "tasks.jsonl")
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path / "root"))

    assert len(bench.inventory(input_jsonl_fpath="data/tasks.jsonl")) == 1


def test_an_agent_that_the_verifier_leaves_out_runs_only_when_that_is_asked_for(bench: NemoBench, stub: NemoStub) -> None:
    stub.config["math"]["resources_servers"]["math"]["allowed_agents"] = ["tool_agent"]
    bench.tasks({})

    with pytest.raises(ConfigError, match="takes agents of type tool_agent, and 'math_simple_agent' is a simple_agent"):
        bench.prepare()

    assert len(bench.inventory(agent={"allow_unsupported_pairing": True})) == 1

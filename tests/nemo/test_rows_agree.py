"""Rows that this collector makes are those that NeMo Gym 0.7.0 makes, over many random datasets and settings.

``NEMO_GYM`` names its program; the Python beside it answers.
"""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from collector.errors import GymEvalError
from orchestrate.config.nemo_gym import from_nemo_gym
from tests.nemo.bench import NemoBench
from tests.nemo.real_servers import PROGRAM
from tests.nemo.test_rows import with_agents
from tests.support.nemo_stub import AGENT, ENVIRONMENT, NemoStub
from tests.support.requirements import require

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

NAMES = ("a", "b", AGENT)
CASES = 400


def a_row(chance: random.Random) -> dict[str, Any]:
    if chance.random() < 0.1:
        return {"task_id": {"taskset": chance.choice("tu"), "task_id": str(chance.randrange(3))}, "task_input": {"x": 1}}
    row: dict[str, Any] = {"n": chance.randrange(3), "responses_create_params": {"input": "?", "top_p": 0.5}}
    if chance.random() < 0.7:
        row["agent_ref"] = {"name": chance.choice(NAMES), "type": "responses_api_agents"}
    if chance.random() < 0.4:
        row["task_source"] = chance.choice(["math", "a", "nothing"] if chance.random() < 0.2 else ["a", "pinned"])
    if chance.random() < 0.2:
        row["responses_create_params"]["metadata"] = {"extra_body": '{"k": 1}', "m": "x"}
    return row


def a_config(chance: random.Random) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if chance.random() < 0.3:
        config["agent_name"] = chance.choice(NAMES)
    if chance.random() < 0.3:
        config["agent_map"] = {chance.choice([*NAMES, "math", "pinned"]): chance.choice(NAMES) for _ in range(2)}
    if chance.random() < 0.3:
        config["fan_out"] = {chance.choice([*NAMES, "math"]): chance.sample(NAMES, chance.randint(1, 3))}
    if chance.random() < 0.7:
        many = {name: chance.randint(1, 3) for name in chance.sample([*NAMES, "math", "_default"], 3)}
        config["num_repeats"] = chance.choice([1, 2, 3, None, many, many])
    if chance.random() < 0.2:
        config["num_repeats_add_seed"] = True
    if chance.random() < 0.3:
        config["responses_create_params"] = {"temperature": 0.5, "metadata": {"extra_body": '{"z": 2}'}}
    if chance.random() < 0.3:
        config["limit"] = chance.randint(0, 4)
    return config | routes(chance)


def routes(chance: random.Random) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if chance.random() < 0.2:
        config |= {
            "environment_routing_mode": "legacy",
            "environment_server_name": chance.choice([ENVIRONMENT, "a_environment"]),
        }
    elif chance.random() < 0.1:
        config |= {"environment_routing_mode": "taskset"}
    if chance.random() < 0.8 or config.get("environment_routing_mode") == "taskset":
        config["environment_server_routes"] = {"t": ENVIRONMENT, "u": "a_environment"}
    return config


def a_case(chance: random.Random, folder: Path) -> dict[str, Any]:
    rows, config = [a_row(chance) for _ in range(chance.randint(1, 6))], a_config(chance)
    if chance.random() < 0.2:
        skill = folder / "skills" / "adding"
        skill.mkdir(parents=True, exist_ok=True)
        (skill / "SKILL.md").write_text("---\nname: adding\ndescription: adds\nmetadata: {version: 3}\n---\nAdd.\n")
        config["skills"] = {"path": str(skill.parent)}
    if chance.random() < 0.2:
        prompt = folder / "prompt.yaml"
        prompt.write_text('system: "Be {{short}}."\nuser: "n is {n}"\n')
        config["prompt_config"] = str(prompt)
        for row in rows:
            if chance.random() < 0.95 and "responses_create_params" in row:
                del row["responses_create_params"]["input"]
    return {"rows": rows, "config": config}


def test_rows_and_targets_are_those_of_its_own_code(bench: NemoBench, stub: NemoStub) -> None:
    python = Path(PROGRAM).parent / "python"
    require("the real NeMo Gym", [] if python.is_file() else ["NEMO_GYM, its program gym"])
    with_agents(stub, "a", "b")
    stub.config["pinned"] = {"resources_servers": {"math": {"datasets": [{"name": "d", "agent": "b"}]}}}
    stub.config["b"]["responses_api_agents"]["simple_agent"]["resources_server"]["name"] = "pinned"
    chance = random.Random(7)
    cases = [a_case(chance, bench.directory) for _ in range(CASES)]
    given = json.dumps({"servers": stub.config, "cases": cases})
    done = subprocess.run(
        [str(python), str(Path(__file__).with_name("peer_rows.py"))], input=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]

    agreed = refused = 0
    for case, theirs in zip(cases, json.loads(done.stdout), strict=True):
        bench.write(*case["rows"])
        mine = ours(bench, case["config"])
        if "error" in theirs:
            assert isinstance(mine, str), f"{theirs}\n{json.dumps(case)}"
            refused += 1
            continue
        assert not isinstance(mine, str), (case, theirs, mine)
        made, targets = mine
        expected = sorted(theirs["rows"], key=place)
        assert [normal(row) for row in made] == [normal(row) for row in expected], case
        assert targets == sorted(set(theirs["targets"])), case
        agreed += 1
    print(f"{CASES} random datasets and settings: {agreed} give the same rows, {refused} are refused by both")
    assert agreed > CASES / 4


def ours(bench: NemoBench, config: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]] | str:
    """The rows and their servers, or why there are none."""
    translated, problems = from_nemo_gym({"agent": "nemo_gym", **config})
    assert not problems
    try:
        run = bench.prepare(**translated)
    except (GymEvalError, ValueError) as error:
        return str(error)
    return bench.rows_in(run), run.manifest.config["agent"]["targets"]


def place(row: dict[str, Any]) -> tuple[int, int]:
    return row["_ng_task_index"], row["_ng_rollout_index"]


def normal(row: dict[str, Any]) -> dict[str, Any]:
    """Without the spelling of the JSON inside of extra_body."""
    params = row.get("responses_create_params") or {}
    text = (params.get("metadata") or {}).get("extra_body")
    return {
        **row,
        "seeded": None if text is None else json.loads(text),
        "responses_create_params": {**params, "metadata": None},
    }

"""Any text given in the file or by an override arrives in the job byte for byte, or is refused in one line."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector.errors import ConfigError
from orchestrate.config.compose import compose_file
from orchestrate.config.load import load_config, settings_of
from orchestrate.config.submit import SubmitConfig
from orchestrate.services.group import group_of
from tests.support.processes import wait_for

#: What a YAML file, an environment and an argument list can hold at all; ${ begins an interpolation, as the manual says.
TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0")).filter(lambda text: "${" not in text)
QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SHOW = "import json,os,sys; open(sys.argv[1],'w').write(json.dumps([sys.argv[2:], {k: v for k, v in os.environ.items() if k[:2] == 'T_'}]))"


def config(texts: list[str], seen: Path) -> dict[str, Any]:
    return {
        "services": {
            "s": {
                "type": "command",
                "command": [sys.executable, "-c", SHOW, str(seen), *texts],
                "served_model_name": texts[0],
                "env": {f"T_{number}": f"lit:{text}" for number, text in enumerate(texts)},
                "port": 4711,
            }
        },
        "compute": {"here": {"type": "local"}},
        "driver": {
            "benchmarks": {
                "a": {
                    "run": {
                        "input_jsonl_fpath": "x",
                        "policy_model_name": texts[0],
                        "verifier": {"type": "echoed", "note": texts},
                        "responses_create_params": {"instructions": texts[-1]},
                        "prompt_config": {"user": texts[0], "system": texts[-1]},
                    }
                }
            }
        },
        "job": {"output_path": "/runs"},
    }


@QUICK
@given(st.lists(TEXTS.filter(lambda text: "{port}" not in text and "{host}" not in text), min_size=1, max_size=6))
def test_text_of_the_file_reaches_arguments_environment_and_requests(texts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, seen = Path(name), Path(name) / "seen"
        path = folder / "submit.yaml"
        # As it is, but for line ends of YAML 1.1, which this library writes so that it reads a space.
        is_odd = any(sign in text for text in texts for sign in "\x85\u2028\u2029")
        path.write_text(yaml.safe_dump(config(texts, seen), allow_unicode=not is_odd))
        loaded = load_config(compose_file(path, []), where=path, environ={}).config
        # What a job reads is the plan, which went through JSON.
        plan = SubmitConfig.model_validate_json(loaded.model_dump_json())

        async def start() -> None:
            async with group_of(plan.services, logs=folder, job="7", environ=os.environ):
                await asyncio.to_thread(wait_for, lambda: seen.exists() and seen.read_text().endswith("]"), 20)

        asyncio.run(start())
        arguments, environment = json.loads(seen.read_text())

    run = settings_of(plan, "a", output=Path("x.jsonl"))
    assert arguments == texts
    assert environment == {f"T_{number}": text for number, text in enumerate(texts)}
    assert plan.services["s"].served_model_name == texts[0]
    assert (run.policy_model_name, run.verifier["note"]) == (texts[0], texts)
    assert run.responses_create_params == {"instructions": texts[-1]}
    assert run.prompt_config.model_dump() == {"user": texts[0], "system": texts[-1]}


def quoted(text: str) -> str:
    """A text in single quotes, as an override writes it: a quote, and the backslashes in front of one, get a backslash."""
    out, backslashes = [], 0
    for char in text:
        if char == "\\":
            backslashes += 1
            continue
        out.append("\\" * (2 * backslashes + 1) + char if char == "'" else "\\" * backslashes + char)
        backslashes = 0
    return "'" + "".join(out) + "\\" * (2 * backslashes) + "'"


@QUICK
@given(TEXTS)
def test_text_of_an_override_arrives_or_is_refused(text: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "submit.yaml"
        path.write_text(yaml.safe_dump(config(["x"], Path("seen"))))
        try:
            data = compose_file(path, [f"++services.s.env.T_0={quoted('lit:' + text)}"])
        except ConfigError:
            return

    assert data["services"]["s"]["env"]["T_0"] == f"lit:{text}"

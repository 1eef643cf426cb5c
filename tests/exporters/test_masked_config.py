"""The settings beside the rollouts: everything is there, and no secret is."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml

from collector.artifacts import RunArtifacts
from collector.settings import RunSettings
from collector.text.masked import MASK, masked_address
from orchestrate.masked_config import masked_yaml, publish_config

PROBE = "hf_PROBE123"


def settings(**changes: object) -> RunSettings:
    values: dict[str, object] = {
        "input_jsonl_fpath": "tasks.jsonl",
        "output_jsonl_fpath": "out.jsonl",
        "policy_model_name": "m",
        "policy_base_url": "http://h/v1",
        "verifier": "exact_match",
        **changes,
    }
    return RunSettings.model_validate(values)


def test_a_secret_is_masked_wherever_it_stands() -> None:
    run = settings(
        policy_api_key=PROBE,
        agent={"type": "openai_chat", "headers": {"X-Trace": {"env": "TRACE_VARIABLE"}}, "api_key_env": "MY_KEY"},
    )

    # Validation refuses such an address; settings made in Python may skip it.
    run = run.model_copy(update={"policy_base_url": f"https://user:{PROBE}@host:8000/v1?api_key={PROBE}&v=2"})
    text = masked_yaml(run).decode()

    assert PROBE not in text
    saved = yaml.safe_load(text)
    assert saved["policy_api_key"] == MASK
    assert saved["policy_base_url"] == f"https://{MASK}@host:8000/v1?api_key={MASK}&v={MASK}"
    assert saved["agent"]["headers"] == {"X-Trace": {"env": "TRACE_VARIABLE"}}
    assert saved["agent"]["api_key_env"] == "MY_KEY"


def test_what_only_looks_like_a_secret_by_its_name_is_shown() -> None:
    run = settings(responses_create_params={"max_output_tokens": 512, "temperature": 0.5, "metadata": {"token_kind": "bpe"}})

    saved = yaml.safe_load(masked_yaml(run))

    assert saved["responses_create_params"] == {
        "max_output_tokens": 512,
        "temperature": 0.5,
        "metadata": {"token_kind": "bpe"},
    }
    assert saved["retry"]["max_attempts"] == 3
    assert saved["verifier"]["type"] == "exact_match"


def test_text_survives_unchanged() -> None:
    run = settings(responses_create_params={"instructions": "Größe: 'x' #1\nsee http://a?b is fine", "stop": ["007", "null"]})

    saved = yaml.safe_load(masked_yaml(run))

    assert saved["responses_create_params"]["instructions"] == "Größe: 'x' #1\nsee http://a?b is fine"
    assert saved["responses_create_params"]["stop"] == ["007", "null"]


@pytest.mark.parametrize(
    "text", ["http://h:8000/v1", "not an address", "s3://bucket/path", "http://[bad", "a://", "x://y z?k=v"]
)
def test_an_address_without_anything_beside_host_and_path_stays(text: str) -> None:
    assert masked_address(text) == text


def test_everybody_who_can_read_the_results_can_read_the_settings(tmp_path: Path) -> None:
    artifacts = RunArtifacts(tmp_path / "rollouts.jsonl")

    publish_config(artifacts, settings())
    first = artifacts.config.stat()
    publish_config(artifacts, settings())

    assert stat.S_IMODE(first.st_mode) & 0o044 == 0o044
    assert artifacts.config.stat().st_ino == first.st_ino


def test_other_settings_replace_the_file(tmp_path: Path) -> None:
    artifacts = RunArtifacts(tmp_path / "rollouts.jsonl")
    publish_config(artifacts, settings())

    publish_config(artifacts, settings(policy_base_url="http://other/v1"))

    assert yaml.safe_load(artifacts.config.read_bytes())["policy_base_url"] == "http://other/v1"

"""A submit YAML that is whole, to be made wrong, and what is said of it then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collector.errors import ConfigError
from orchestrate.config.load import Loaded, load_config

WHERE = Path("submit.yaml")


def config() -> dict[str, Any]:
    return {
        "services": {"m": {"type": "command", "command": ["serve", "{port}"], "served_model_name": "org/m"}},
        "compute": {"hpc": {"type": "slurm", "walltime": "4h"}},
        "driver": {
            "policy_model": "m",
            "benchmarks": {"math": {"run": {"input_jsonl_fpath": "math.jsonl", "verifier": {"type": "exact_match"}}}},
        },
        "job": {"output_path": "runs"},
    }


def load(data: dict[str, Any], **environ: str) -> Loaded:
    return load_config(data, where=WHERE, environ=environ)


def problem(data: dict[str, Any], **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(data, **environ)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("submit.yaml: ")
    return message

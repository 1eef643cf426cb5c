"""What is written into a row before it is sent: its input from a prompt template, the seed of its repeat."""

from __future__ import annotations

import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from collector import jsonl
from collector.errors import ConfigError, NotFoundError
from collector.settings import PromptConfig


def load_prompt(config: PromptConfig | Path | None) -> PromptConfig | None:
    """The prompt template itself, read from its YAML file when a path is given."""
    if config is None or isinstance(config, PromptConfig):
        return config
    try:
        return PromptConfig.model_validate(yaml.safe_load(config.read_text()))
    except FileNotFoundError as error:
        raise NotFoundError("there is no such prompt file.", "Check prompt_config.", config) from error
    except (ValidationError, yaml.YAMLError) as error:
        problem = " ".join(str(error).split())
        raise ConfigError(f"not a prompt file: {problem}", "It has `user` and, if wanted, `system`.", config) from error


def messages_of(prompt: PromptConfig, row: Mapping[str, Any]) -> list[dict[str, str]]:
    """The messages that ``prompt`` makes of the row's fields. Raises ValueError with what the row lacks."""
    parts = {"system": prompt.system, "user": prompt.user}
    return [{"role": role, "content": _fill(text, row)} for role, text in parts.items() if text is not None]


def seeded(row: Mapping[str, Any], repeat: int) -> dict[str, Any]:
    """``row`` with its repeat as the seed, in the JSON text ``responses_create_params.metadata.extra_body``."""
    params = dict(row["responses_create_params"])
    metadata = params.get("metadata") or {}
    if not isinstance(metadata, dict) or not isinstance(metadata.get("extra_body", "{}"), str):
        raise ValueError("responses_create_params.metadata is not an object with a JSON text as extra_body")  # noqa: TRY004
    body = jsonl.loads(metadata.get("extra_body", "{}").encode())
    if not isinstance(body, dict):
        raise ValueError("responses_create_params.metadata.extra_body is not the text of a JSON object")  # noqa: TRY004
    metadata = {**metadata, "extra_body": jsonl.dumps({**body, "seed": repeat}).decode()}
    return {**row, "responses_create_params": {**params, "metadata": metadata}}


def _fill(template: str, row: Mapping[str, Any]) -> str:
    try:
        return string.Formatter().vformat(template, (), row)
    except (KeyError, IndexError, AttributeError, TypeError, ValueError) as error:
        have = ", ".join(sorted(row)) or "no fields"
        raise ValueError(f"the prompt needs {error} and the row has {have}") from error

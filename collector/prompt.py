"""What is written into a row before it is sent: its input from a prompt template, the seed of its repeat."""

from __future__ import annotations

import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from collector import jsonl
from collector.errors import ConfigError, NotFoundError
from collector.settings import PromptConfig

_CURE: Final = "It has `user` and, if wanted, `system`."
#: A prompt is written by people; more than this is another kind of file.
_SIZE_LIMIT: Final = 4 << 20


def load_prompt(config: PromptConfig | Path | None) -> PromptConfig | None:
    """The prompt template itself, read from its YAML file when a path is given."""
    if config is None or isinstance(config, PromptConfig):
        return config
    try:
        return PromptConfig.model_validate(yaml.load(_text_of(config), _OnceLoader))  # noqa: S506 - it is a safe loader
    except FileNotFoundError as error:
        raise NotFoundError("there is no such prompt file.", "Check prompt_config.", config) from error
    except ValidationError as error:
        told = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'the file'}: {e['msg']}" for e in error.errors())
        raise ConfigError(f"not a prompt file: {told}.", _CURE, config) from error
    except RecursionError as error:
        raise ConfigError("not a prompt file: it is nested too deeply.", _CURE, config) from error
    except (ValueError, yaml.YAMLError) as error:
        # ValueError: no UTF-8, say, or a number with thousands of digits.
        raise ConfigError(f"not a prompt file: {' '.join(str(error).split())}.", _CURE, config) from error


def _text_of(path: Path) -> str:
    if path.exists() and not path.is_file():
        # To open a pipe is to wait for its other end, and a device may have no end.
        raise ConfigError("not a prompt file: it is no regular file.", _CURE, path)
    with path.open("rb") as file:
        data = file.read(_SIZE_LIMIT + 1)
    if len(data) > _SIZE_LIMIT:
        raise ConfigError(f"not a prompt file: it is larger than {_SIZE_LIMIT >> 20} MiB.", _CURE, path)
    # utf-8-sig: editors on Windows put a byte order mark in front.
    return data.decode("utf-8-sig")


class _OnceLoader(yaml.SafeLoader):
    """A key that stands twice is a mistake, and not its last value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        if twice := next((key for key in keys if isinstance(key, str) and keys.count(key) > 1), None):
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


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

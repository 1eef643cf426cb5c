"""What a row asks of the model, checked before anything is sent: known keys pass, neutral ones vanish, others are refused."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any, Final

from collector import jsonl
from collector.sampling import range_problem

#: Values that ask for nothing and are left out; any other value of these keys cannot be honoured.
_NEUTRAL: Final[Mapping[str, tuple[Any, ...]]] = {
    "stream": (False,),
    "background": (False,),
    "store": (False,),
    "truncation": ("disabled",),
    "include": ([],),
}
_INPUTS: Final = (str, list)
#: Would change the shape of the reply or what is asked, behind the back of the row.
_NEVER_EXTRA: Final = frozenset({"stream", "n", "messages", "input"})


def parameters_of(row: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """The row's ``responses_create_params`` without nulls and neutral values.

    Raises ValueError that names the key which is missing, unknown or has a value that cannot be honoured.
    """
    params = row.get("responses_create_params")
    if not isinstance(params, dict):
        raise ValueError("the row has no responses_create_params object")  # noqa: TRY004 - data, not a caller's mistake
    kept: dict[str, Any] = {}
    for key, value in params.items():
        if value is None or (key in _NEUTRAL and _is_neutral(key, value)):
            continue
        if key not in known:
            raise ValueError(_unsupported(key, known))
        kept[key] = value
    if not isinstance(kept.get("input"), _INPUTS) or not kept["input"]:
        raise ValueError("responses_create_params.input must be a text or a list of items, and not empty")
    return kept


def extra_body_of(params: Mapping[str, Any], settings_extra: Mapping[str, Any]) -> dict[str, Any]:
    """The keys to merge over a body: the row's ``metadata.extra_body`` (a JSON string), then those of the settings."""
    metadata = params.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise ValueError("responses_create_params.metadata must be an object")  # noqa: TRY004 - data
    text = metadata.get("extra_body")
    row_extra: Any = {}
    if text is not None:
        try:
            row_extra = jsonl.loads(text.encode()) if isinstance(text, str) else None
        except (ValueError, UnicodeEncodeError):
            row_extra = None
        if not isinstance(row_extra, dict):
            raise ValueError("responses_create_params.metadata.extra_body must be a JSON object written as a string")
    merged = {**row_extra, **settings_extra}
    for key in sorted(_NEVER_EXTRA & merged.keys()):
        raise ValueError(f"extra_body may not set {key!r}")
    return merged


def model_of(params: Mapping[str, Any], policy_model_name: str | None) -> str:
    """The model to ask for: the run's, else the row's. Raises ValueError when neither names one."""
    name = policy_model_name or params.get("model")
    if not isinstance(name, str) or not name:
        raise ValueError("no model is named: set policy_model_name, or responses_create_params.model in each row")
    return name


def check_numbers(params: Mapping[str, Any], keys: frozenset[str]) -> None:
    """Raise ValueError for a value of ``keys`` that is not a number, or one that no server can honour."""
    for key in sorted(keys & params.keys()):
        if isinstance(params[key], bool) or not isinstance(params[key], int | float):
            raise ValueError(f"responses_create_params.{key} must be a number, not {json.dumps(params[key])[:40]}")  # noqa: TRY004 - data
        if (problem := range_problem(key, params[key])) is not None:
            raise ValueError(f"responses_create_params.{key} {problem}")


def _is_neutral(key: str, value: Any) -> bool:
    return any(value == neutral and type(value) is type(neutral) for neutral in _NEUTRAL[key])


def _unsupported(key: str, known: frozenset[str]) -> str:
    if key in _NEUTRAL:
        return f"responses_create_params.{key} has a value that cannot be honoured; leave the key out"
    near = difflib.get_close_matches(key, sorted(known), n=1)
    guess = f"did you mean {near[0]!r}? " if near else ""
    return f"responses_create_params.{key} is not supported; {guess}a server's own parameter goes into agent.extra_body"

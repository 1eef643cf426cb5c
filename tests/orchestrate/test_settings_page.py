"""docs/settings.md says all that a run can be told, under the names that it has, and what belongs to the experiment."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from collector.agents.openai_chat import OpenAIChatSettings
from collector.agents.openai_responses import OpenAIResponsesSettings
from collector.settings import CONNECTION, REPORTING, RunSettings, Timeouts
from collector.verifiers.base import VERIFIERS

PAGE = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
#: Verifiers with a page of their own, and the one that nobody chooses.
ELSEWHERE = {"judge", "gym_server", "environment"}


def marks(model: type[BaseModel]) -> dict[str, bool]:
    """Each setting of ``model``, and whether it may change between two sessions of a run."""
    return {
        name: field.json_schema_extra in (CONNECTION, REPORTING) for name, field in model.model_fields.items() if name != "type"
    }


def said(text: str) -> dict[str, bool]:
    """Each name in code in ``text``, and whether a † stands behind it anywhere."""
    found: dict[str, bool] = {}
    for name, mark in re.findall(r"`(\w+)`( †)?", text):
        found[name] = found.get(name, False) or bool(mark)
    return found


@pytest.mark.parametrize("model", [RunSettings, OpenAIChatSettings, OpenAIResponsesSettings], ids=lambda model: model.__name__)
def test_each_setting_of_a_run_is_told_with_whether_it_may_change(model: type[BaseModel]) -> None:
    page = said(PAGE)

    assert {name: page.get(name) for name in marks(model)} == marks(model)


def test_each_time_limit_is_told_with_its_length() -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith("| `timeouts`"))

    for name, field in Timeouts.model_fields.items():
        assert f"`{name}` ({field.default:g}" in row


@pytest.mark.parametrize("name", sorted(set(VERIFIERS.builtin) - ELSEWHERE))
def test_each_setting_of_a_verifier_is_told_in_its_row(name: str) -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith((f"| `{name}` |", f"| `{name}:")))

    settings = marks(VERIFIERS.load(name).Settings)
    assert {key: said(row.replace("function:", "`function`")).get(key) for key in settings} == settings

"""What a judge's words mean: a rule that finds the verdict in them, and labels or a range that make a reward of it.

A verdict that is not one of the labels, or no number within the range, is no verdict: nothing here guesses.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field, field_validator

from collector.settings import StrictModel
from collector.verifiers.json_in_text import value_in_text
from collector.verifiers.patterns import compile_pattern

#: Decoration that models put around a word.
_DECORATION: Final = " \t\r\n*_`\"'.,;:!#[](){}<>"


class LastLine(StrictModel):
    """The last line that is not empty, or what follows its last colon."""

    how: Literal["last_line"] = "last_line"


class RegexRule(StrictModel):
    """The last match of ``pattern``: its first group, or the whole where it has none."""

    how: Literal["regex"]
    pattern: str

    @field_validator("pattern")
    @classmethod
    def _is_pattern(cls, value: str) -> str:
        compile_pattern(value)
        return value


class JsonRule(StrictModel):
    """The value of ``key`` in the last JSON object of the reply that has it; of objects within each other the outermost."""

    how: Literal["json"]
    key: str = "verdict"


def _named_rule(value: Any) -> Any:
    return {"how": value} if isinstance(value, str) else value


ParseRule: TypeAlias = Annotated[
    Annotated[LastLine | RegexRule | JsonRule, Field(discriminator="how")], BeforeValidator(_named_rule)
]


def last_line(text: str) -> str | None:
    """The last line of ``text`` that says something; of ``VERDICT: no`` what follows the colon."""
    lines = [line for line in text.split("\n") if line.strip(_DECORATION)]
    if not lines:
        return None
    before, colon, after = lines[-1].rpartition(":")
    return after if colon and after.strip(_DECORATION) else before or lines[-1]


def json_value(text: str, key: str) -> str | None:
    """The value of ``key`` as text, by ``JsonRule``; None when no object of ``text`` has it."""
    found = value_in_text(text, key)
    if found is None:
        return None
    try:
        value = json.loads(found)
    except (ValueError, RecursionError):
        # Numbers of thousands of digits and what is nested as deep: no label, and nothing that has to be understood.
        return found
    return value if isinstance(value, str) else json.dumps(value)


def same_labels(labels: Collection[str]) -> list[str]:
    """Those of ``labels`` that nothing tells apart from another one."""
    counts = Counter(map(_plain, labels))
    return [label for label in labels if counts[_plain(label)] > 1]


def _plain(text: str) -> str:
    return text.strip(_DECORATION).casefold()


def label_reward(found: str, labels: dict[str, float]) -> tuple[str, float] | None:
    """The label that ``found`` is, without decoration and whatever its case, with its reward; None when it is none."""
    plain = _plain(found)
    for label, reward in labels.items():
        if _plain(label) == plain:
            return label, reward
    return None


def score_reward(found: str, score_range: tuple[float, float]) -> float | None:
    """The number that ``found`` is, scaled from ``score_range`` to 0 to 1; None when it is none within the range.

    ``7/10`` is the number 7 when the range ends at 10.
    """
    low, high = score_range
    number, slash, whole = _plain_number(found).partition("/")
    try:
        score = float(number)
        if slash and float(whole) != high:
            return None
    except ValueError:
        return None
    if not math.isfinite(score) or not low <= score <= high:
        return None
    return (score - low) / (high - low)


def _plain_number(text: str) -> str:
    """``text`` without decoration; the point of ``.5`` is none."""
    left = text.lstrip(_DECORATION)
    begin = len(text) - len(left)
    point = "." if left[:1].isdigit() and text[begin - 1 : begin] == "." else ""
    return point + left.rstrip(_DECORATION)

"""A user's own grader, for ``verifier: python:tests.outcomes.graders:named``: the reward that the row names."""

from __future__ import annotations

import math
from typing import Any

REWARDS: dict[str, Any] = {
    "nan": math.nan,
    "inf": math.inf,
    "minus-inf": -math.inf,
    "minus-zero": -0.0,
    "true": True,
    "null": None,
    "text": "0.5",
    "beyond-float": 10**400,
    "one": 1,
    "half": 0.5,
    "missing": {"extracted": "4"},
}


def named(row: dict[str, Any], text: str, response: dict[str, Any]) -> Any:
    return REWARDS[row["reward_name"]]

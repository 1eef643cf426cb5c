"""Which numbers a request's parameters may have: those that no server can honour are refused before anything is asked."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from collector.outcome_checks import shown

_LARGEST: Final = sys.float_info.max
#: The least and the greatest value of a parameter; None: no bound that all servers share.
_BOUNDS: Final[Mapping[str, tuple[int, int | None]]] = {
    "temperature": (0, None),
    "top_p": (0, 1),
    "max_output_tokens": (1, None),
    "max_tokens": (1, None),
    "max_tool_calls": (0, None),
    "top_logprobs": (0, None),
}


def range_problem(key: str, value: Any) -> str | None:
    """What is wrong with the size of ``value``: ``must be at least 0, not -3``.

    None for what is no number: its type is checked elsewhere.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not -_LARGEST <= value <= _LARGEST:
        return f"must be a finite number, not {shown(value)}"
    least, most = _BOUNDS.get(key, (None, None))
    if least is not None and value < least:
        return f"must be at least {least}, not {value}"
    if most is not None and value > most:
        return f"must be at most {most}, not {value}"
    return None

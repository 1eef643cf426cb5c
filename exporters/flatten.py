"""One flat picture of a finished run for every tracker: parameters, final metrics with their coverage, and what was left out.

Pure. Names here are the run's own; what a backend can hold of them is ``exporters.trackers.names``' business.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from collector.state.coverage import Coverage
from exporters.source import RunFigures

#: Integers beyond it change when they become a float, which is what trackers store.
_EXACT: Final = 2**53


@dataclass(slots=True)
class Flat:
    """What is sent. ``omitted`` says of each figure that is not sent why it is not."""

    params: dict[str, str] = field(default_factory=dict[str, str])
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    texts: dict[str, str] = field(default_factory=dict[str, str])
    omitted: dict[str, str] = field(default_factory=dict[str, str])


def flatten_run(figures: RunFigures, config: Mapping[str, Any]) -> Flat:
    """Metrics as ``<agent>/<metric>`` and ``key_metrics/<agent>/<metric>``, counts as ``coverage/<state>``, settings dotted.

    Figures of single tasks and repeats are not flattened: there may be a million. They are in the aggregate file.
    """
    flat = Flat(params=dict(flatten_settings(config)))
    for name, value in coverage_figures(figures.coverage).items():
        _add(flat, f"coverage/{name}", value)
    for entry in figures.entries:
        agent = agent_of(entry)
        for prefix, key in ((agent, "agent_metrics"), (f"key_metrics/{agent}", "key_metrics")):
            values = entry.get(key)
            for name, value in values.items() if isinstance(values, dict) else ():
                _add(flat, f"{prefix}/{name}", value)
    return flat


def agent_of(entry: Mapping[str, Any]) -> str:
    """Whose metrics an entry of the aggregate file holds."""
    reference = entry.get("agent_ref")
    name = reference.get("name") if isinstance(reference, dict) else None
    return name if isinstance(name, str) and name else "agent"


def coverage_figures(coverage: Coverage) -> dict[str, float | bool | None]:
    """The counts that a score rests on, and its bounds."""
    bounds = coverage.bounds
    return {
        "expected": coverage.expected if coverage.coverage_known else None,
        "completed": coverage.completed,
        **{state.value: count for state, count in coverage.states.items()},
        "attempts": coverage.attempts,
        "failed_terminally": coverage.failed_terminally,
        "exhausted_by_interruption": coverage.exhausted_by_interruption,
        "truncated": coverage.truncated,
        "unfinished": coverage.unfinished,
        "mean_reward": coverage.mean,
        "mean_reward_lower_bound": bounds[0] if bounds else None,
        "mean_reward_upper_bound": bounds[1] if bounds else None,
    }


def _add(flat: Flat, name: str, value: Any) -> None:
    match value:
        case None:
            flat.omitted[name] = "absent"
        case bool():
            flat.texts[name] = "true" if value else "false"
        case int() if abs(value) > _EXACT:
            flat.omitted[name] = f"{value} is no exact number for a tracker"
        case int() | float():
            number = float(value)
            if math.isfinite(number):
                flat.metrics[name] = number
            else:
                flat.omitted[name] = f"not finite ({number})"
        case str():
            flat.texts[name] = value
        case _:
            flat.omitted[name] = f"a {type(value).__name__}, in the aggregate file"


def flatten_settings(value: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as ``a.b[0].c`` with their values as text; an empty object or list is a value."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from flatten_settings(item, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from flatten_settings(item, f"{prefix}[{index}]")
    elif prefix:
        yield prefix, value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)

"""Metrics of other people's packages: one class and one entry point of the group ``gym_eval.metrics``."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final

from collector.errors import ConfigError
from collector.registry import Registry
from merge.metrics import Metrics
from merge.table import RowTable


class Metric(ABC):
    """Figures of its own over all unmasked rows. Made without arguments."""

    @abstractmethod
    def compute(self, table: RowTable) -> Mapping[str, float | int | None]:
        """The figures by name, once for each agent. ``table`` is read only; NaN in a column means that the row has no value."""


METRICS: Final[Registry[Metric]] = Registry("metric", "gym_eval.metrics", Metric)


def check_plugins(names: Sequence[str]) -> None:
    """Raise ConfigError unless every one of ``names`` can be used."""
    for name in names:
        METRICS.load(name)


def plugin_metrics(names: Sequence[str], table: RowTable) -> Metrics:
    """The figures of the metrics called ``names``, each as ``<name>/<figure>``. Raises ConfigError for one that is none."""
    found: Metrics = {}
    for name in names:
        metric: Metric = METRICS.load(name)()
        figures: Mapping[str, Any] = metric.compute(table)
        for figure, value in figures.items():
            if value is not None and not (isinstance(value, int | float) and math.isfinite(value)):
                raise ConfigError(f"metric {name!r} gives {value!r} for {figure!r}.", "A figure is a finite number or None.")
            found[f"{name}/{figure}"] = value
    return found

"""Metrics of other people's packages: one class and one entry point of the group ``gym_eval.metrics``."""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from collector import jsonl
from collector.errors import ConfigError
from collector.outcome_checks import is_reward, shown, told
from collector.registry import Registry
from merge.metrics.fields import Metrics
from merge.metrics.table import RowTable

_USAGE: Final = "A figure is a finite number or None."
#: A float holds every whole number up to here.
_MOST_EXACT: Final = 1 << 53


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


def plugin_metrics(names: Sequence[str], table: RowTable, taken: Collection[str] = ()) -> Metrics:
    """The figures of the metrics called ``names``, each as ``<name>/<figure>``.

    Raises ConfigError for a metric that raises, for a figure that is none, and for one whose name is among those ``taken``.
    """
    found: Metrics = {}
    for name in names:
        for figure, value in _figures(name, table).items():
            whole = jsonl.escaped(f"{name}/{figure}")
            if whole in taken or whole in found:
                raise ConfigError(f"metric {name!r} gives {whole}, which is there already.", "Give it another name.")
            if value is not None and not is_reward(value):
                raise ConfigError(f"metric {name!r} gives {shown(value)} for {figure!r}.", _USAGE)
            found[whole] = None if value is None else _plain(value)
    return found


def _plain(value: float) -> float:
    """``value`` as JSON has it: a number of Python's own, not of numpy's, with no more digits than readers take."""
    return value if isinstance(value, int) and abs(value) <= _MOST_EXACT else float(value)


def _figures(name: str, table: RowTable) -> Mapping[str, Any]:
    kind = METRICS.load(name)
    try:
        # A copy: to sort a column in place would be to change every figure that is made of it after that.
        figures: Any = kind().compute(table.copied())
    except (Exception, SystemExit) as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigError(
            f"metric {name!r} ended with {told(error)} ({frame.filename}, line {frame.lineno}).", "Mend it, or leave it out."
        ) from error
    if not isinstance(figures, Mapping):
        raise ConfigError(f"metric {name!r} gives a {type(figures).__name__}.", "It is a mapping of names to figures.")
    return figures

"""The names of all exporters; a class is imported when it is used, a backend when it exports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from collector.artifacts import RunArtifacts
from collector.registry import Registry
from collector.settings import validate_settings
from exporters.base import Exporter, RunExportConfig
from exporters.names import BUILTIN

EXPORTERS: Final[Registry[Exporter[RunExportConfig]]] = Registry(
    kind="exporter",
    group="gym_eval.exporters",
    base=Exporter,
    builtin=BUILTIN,
)


def load_run_exporter_class(name: str) -> type[Exporter[RunExportConfig]]:
    """The exporter called ``name``. Raises ConfigError that lists the choices."""
    return EXPORTERS.load(name)


def make_exporter(
    name: str, values: Mapping[str, object], artifacts: RunArtifacts, *, environ: Mapping[str, str] | None = None
) -> Exporter[RunExportConfig]:
    """The exporter called ``name``, set up with ``values`` for ``artifacts``. Raises ConfigError with every problem.

    ``environ`` are the variables that it goes by; None: those of this process.
    """
    cls = load_run_exporter_class(name)
    settings = {**values, "rollouts_jsonl_fpath": artifacts.rollouts}
    exporter = cls(validate_settings(cls.Config, settings, f"export.{name}"))
    if environ is not None:
        exporter.environ = environ
    return exporter

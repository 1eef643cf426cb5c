"""The exporters that come with the package, by name. Imports nothing: help texts and parsers read it."""

from __future__ import annotations

from typing import Final

#: Name to ``module:Class``.
BUILTIN: Final = {
    "atif": "exporters.atif.exporter:AtifExporter",
    "csv": "exporters.tables.exporter:CsvExporter",
    "inspect": "exporters.inspect.exporter:InspectExporter",
    "mlflow": "exporters.trackers.mlflow:MlflowExporter",
    "parquet": "exporters.tables.exporter:ParquetExporter",
    "wandb": "exporters.trackers.wandb:WandbExporter",
}
DEFAULT: Final = "atif"

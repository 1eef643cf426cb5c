"""Exports to a server of W&B that stands in for the real one."""

from __future__ import annotations

from typing import Any

from collector.artifacts import RunArtifacts
from exporters.base import ExportResult
from exporters.direct import export_run
from tests.exporters.wandb_stand_in import WandbStandIn

KEY = "k" * 40


def export(artifacts: RunArtifacts, server: WandbStandIn, **more: Any) -> ExportResult:
    settings = {"project": "p", "base_url": server.uri, "timeout_s": 60, "request_timeout_s": 4, **more}
    return export_run("wandb", settings, artifacts)

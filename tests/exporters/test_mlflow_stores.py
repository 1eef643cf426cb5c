"""The exporter ``mlflow`` where no server is: a folder works with the client alone, and a database says what it needs."""

from __future__ import annotations

from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import pytest

from collector.artifacts import RunArtifacts
from exporters.base import ExportState
from exporters.registry import make_exporter
from exporters.source import ExportError
from exporters.trackers import mlflow
from exporters.trackers.mlflow import MlflowExporter
from tests.exporters.made_runs import merged_run

pytestmark = pytest.mark.timeout(120)


def exporter_to(place: str, artifacts: RunArtifacts) -> MlflowExporter:
    made = make_exporter("mlflow", {"tracking_uri": place}, artifacts)
    assert isinstance(made, MlflowExporter)
    return made


def test_a_run_goes_to_a_folder_with_the_client_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    artifacts = merged_run(tmp_path / "run")
    store = tmp_path / "mlruns"

    result = exporter_to(str(store), artifacts).publish(artifacts)

    assert result.state is ExportState.SUCCEEDED, result.message
    sent = [path for path in store.rglob("*") if path.is_file() and "metrics" in path.parts and "mean" in str(path)]
    assert 0.5 in {float(path.read_text().split()[1]) for path in sent}


@pytest.mark.parametrize("place", ["sqlite:////tmp/a.db", "postgresql+psycopg://db/runs"])
def test_a_database_says_what_it_needs_before_anything_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    artifacts = merged_run(tmp_path / "run")

    def without_databases(name: str) -> ModuleSpec | None:
        return None if name == "sqlalchemy" else find_spec(name)

    monkeypatch.setattr(mlflow, "find_spec", without_databases)
    exporter = exporter_to(place, artifacts)

    assert "pip install mlflow" in (exporter.missing() or "")
    with pytest.raises(ExportError, match="a database needs all of it"):
        exporter.publish(artifacts)
    assert exporter_to("https://mlflow.example:5000", artifacts).missing() is None

"""What every exporter promises; its tests inherit this suite and say how to set one up."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from collector.artifacts import RunArtifacts
from collector.prepare import validate_settings
from exporters.base import Exporter, ExportState, RunExportConfig
from exporters.registry import EXPORTERS, load_run_exporter_class
from merge.command import merge_paths
from tests.merge.build import answered, fill_all, plan


class ExporterContract:
    """Inherit as ``TestX(ExporterContract)``."""

    name: str

    @abstractmethod
    def settings(self, tmp_path: Path) -> dict[str, Any]:
        """Valid settings but for the rollouts path."""

    @pytest.fixture
    def merged(self, tmp_path: Path) -> RunArtifacts:
        made = plan(tmp_path / "b", shards=2, tasks=4)
        fill_all(made, lambda task, _: answered(float(task % 2)))
        merge_paths([made.directory], made.merged.rollouts)
        return made.merged

    def make(self, tmp_path: Path, artifacts: RunArtifacts, **changes: Any) -> Exporter[RunExportConfig]:
        cls = load_run_exporter_class(self.name)
        values = {**self.settings(tmp_path), "rollouts_jsonl_fpath": artifacts.rollouts, **changes}
        return cls(validate_settings(cls.Config, values, self.name))

    def test_it_is_registered_under_its_name(self) -> None:
        assert self.name in EXPORTERS.names()

    def test_a_finished_run_is_exported(self, tmp_path: Path, merged: RunArtifacts) -> None:
        result = self.make(tmp_path, merged).export(merged)

        assert result.state is ExportState.SUCCEEDED
        assert result.lines(self.name)[0] == f"Export {self.name}: succeeded"
        assert self.make(tmp_path, merged).still_stands(result.evidence)

    def test_the_run_is_not_changed(self, tmp_path: Path, merged: RunArtifacts) -> None:
        run = merged.rollouts.parent
        before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}

        self.make(tmp_path, merged).export(merged)

        assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before

    def test_the_artifacts_given_win_over_the_path_in_the_config(self, tmp_path: Path, merged: RunArtifacts) -> None:
        exporter = self.make(tmp_path, merged, rollouts_jsonl_fpath=tmp_path / "ignored.jsonl")

        assert exporter.export(merged).is_success

    def test_a_missing_run_is_a_failed_result_that_names_the_file(self, tmp_path: Path, merged: RunArtifacts) -> None:
        merged.rollouts.unlink()

        result = self.make(tmp_path, merged).export(merged)

        assert result.state is ExportState.FAILED
        assert str(merged.rollouts) in result.message

    def test_an_unreadable_run_is_a_failed_result_and_a_bug_is_an_exception(
        self, tmp_path: Path, merged: RunArtifacts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        exporter = self.make(tmp_path, merged)

        def raising(error: Exception) -> None:
            def fail(*_: object) -> None:
                raise error

            monkeypatch.setattr(exporter, "publish", fail)

        raising(PermissionError(13, "Permission denied", "rows"))
        assert exporter.export(merged).state is ExportState.FAILED
        raising(RuntimeError("a bug"))
        with pytest.raises(RuntimeError, match="a bug"):
            exporter.export(merged)

    def test_an_unknown_key_is_refused(self, tmp_path: Path, merged: RunArtifacts) -> None:
        cls = load_run_exporter_class(self.name)

        with pytest.raises(ValidationError):
            cls.Config.model_validate({**self.settings(tmp_path), "rollouts_jsonl_fpath": merged.rollouts, "no_such_key": 1})

    def test_its_destination_is_the_same_for_the_same_settings(self, tmp_path: Path, merged: RunArtifacts) -> None:
        assert self.make(tmp_path, merged).destination == self.make(tmp_path, merged).destination

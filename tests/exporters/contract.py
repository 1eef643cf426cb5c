"""What every exporter promises; its tests inherit this suite and say how to set one up."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from collector.artifacts import RunArtifacts
from collector.durable import writing
from collector.settings import RetrySettings, validate_settings
from exporters.base import Exporter, ExportState, RunExportConfig
from exporters.ledger import arrived_at, read_events
from exporters.once import export_once
from exporters.registry import EXPORTERS, load_run_exporter_class
from exporters.tail import finish_benchmark
from merge.command import merge_paths
from merge.publication.partial import partial_name
from merge.publication.receipt import read_receipt
from tests.merge.build import Plan, answered, failed, fill, fill_all, plan, prepare_only

#: So many attempts that a rollout that failed three times goes on.
LONGER = RetrySettings(max_attempts=4)


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
        # Neither Python's way of writing an error, nor what a file is called while it is written.
        raising(OSError(30, "Read-only file system", "/a/rows", None, f"/b/.table.csv.{'0a' * 8}.tmp/part"))
        assert exporter.export(merged).message == "/b/table.csv/part: Read-only file system"
        raising(RuntimeError("a bug"))
        with pytest.raises(RuntimeError, match="a bug"):
            exporter.export(merged)

    def test_a_second_export_changes_nothing(self, tmp_path: Path, merged: RunArtifacts) -> None:
        receipt = read_receipt(merged.receipt)
        assert receipt is not None
        first = export_once(self.name, self.settings(tmp_path), merged, receipt.output.sha256)

        second = export_once(self.name, self.settings(tmp_path), merged, receipt.output.sha256)

        assert first.is_success, first.message
        assert second.is_success
        assert second.message == "already exported"

    def test_a_projection_that_is_not_the_published_one_is_refused(self, tmp_path: Path, merged: RunArtifacts) -> None:
        merged.rollouts.write_bytes(merged.rollouts.read_bytes().replace(b"four", b"five"))

        result = self.make(tmp_path, merged).export(merged)

        assert "is not the file that was published" in result.message

    def test_a_partial_run_is_refused_unless_it_is_allowed(self, tmp_path: Path) -> None:
        made = plan(tmp_path / "partial", shards=2, tasks=4)
        fill(made, 0, lambda *_: answered(1.0))
        prepare_only(made, 1)
        merge_paths([made.directory], made.merged.rollouts, allow_partial=True)
        partial = RunArtifacts(partial_name(made.merged.rollouts))

        refused = self.make(tmp_path, partial).export(partial)
        allowed = self.make(tmp_path, partial, allow_partial=True).export(partial)

        assert "the run is partial: 2 of 4 rollouts are completed, 2 are unfinished" in refused.message
        assert allowed.is_success, allowed.message

    def test_an_unknown_key_is_refused(self, tmp_path: Path, merged: RunArtifacts) -> None:
        cls = load_run_exporter_class(self.name)

        with pytest.raises(ValidationError):
            cls.Config.model_validate({**self.settings(tmp_path), "rollouts_jsonl_fpath": merged.rollouts, "no_such_key": 1})

    def test_its_destination_is_the_same_for_the_same_settings(self, tmp_path: Path, merged: RunArtifacts) -> None:
        assert self.make(tmp_path, merged).destination == self.make(tmp_path, merged).destination


class LocalExporterContract(ExporterContract):
    """For exporters that make one new thing on disk, a file or a folder, named by the setting ``key``."""

    key: str
    #: Write calls that an export of the run needs at least.
    writes = 3

    def place(self, tmp_path: Path) -> Path:
        return Path(self.settings(tmp_path)[self.key])

    def test_a_destination_that_exists_is_untouched(self, tmp_path: Path, merged: RunArtifacts) -> None:
        place = self.place(tmp_path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("mine")

        result = self.make(tmp_path, merged).export(merged)

        assert "exists already" in result.message
        assert place.read_text() == "mine"

    def test_a_parent_that_is_a_file_is_a_failed_result(self, tmp_path: Path, merged: RunArtifacts) -> None:
        (tmp_path / "blocked").write_text("")

        result = self.make(tmp_path, merged, **{self.key: tmp_path / "blocked" / "x"}).export(merged)

        assert result.state is ExportState.FAILED
        assert "blocked" in result.message

    @pytest.mark.parametrize("number", [1, 2, 3])
    def test_a_disk_that_becomes_full_leaves_nothing(
        self, number: int, tmp_path: Path, merged: RunArtifacts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        number = min(number, self.writes)
        exporter = self.make(tmp_path, merged)
        self.place(tmp_path).parent.mkdir(parents=True, exist_ok=True)
        before = sorted(tmp_path.rglob("*"))
        write, calls = writing.write_all, count(1)

        def filling(descriptor: int, data: bytes) -> None:
            if next(calls) == number:
                raise OSError(28, "No space left on device")
            write(descriptor, data)

        monkeypatch.setattr(writing, "write_all", filling)
        result = exporter.export(merged)

        assert result.state is ExportState.FAILED
        assert "No space left on device" in result.message
        assert str(self.place(tmp_path)) in result.message
        assert sorted(tmp_path.rglob("*")) == before

    def when_it_first_writes(self, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
        write, calls = writing.write_all, count(1)

        def changing(descriptor: int, data: bytes) -> None:
            if next(calls) == 1:
                act()
            write(descriptor, data)

        monkeypatch.setattr(writing, "write_all", changing)

    def test_a_run_that_is_replaced_while_it_is_read_is_no_export(
        self, tmp_path: Path, merged: RunArtifacts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = tmp_path / "other.jsonl"
        other.write_bytes(merged.rollouts.read_bytes())
        self.when_it_first_writes(monkeypatch, lambda: other.replace(merged.rollouts))

        result = self.make(tmp_path, merged).export(merged)

        assert "was changed while it was read" in result.message
        assert not self.place(tmp_path).exists()

    def test_what_somebody_else_publishes_there_meanwhile_is_untouched(
        self, tmp_path: Path, merged: RunArtifacts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place = self.place(tmp_path)
        mine = place if self.key == "output_fpath" else place / "mine"
        self.when_it_first_writes(monkeypatch, lambda: (mine.parent.mkdir(exist_ok=True), mine.write_text("mine")))

        result = self.make(tmp_path, merged).export(merged)

        assert result.state is ExportState.FAILED
        assert mine.read_text() == "mine"
        assert not list(place.parent.glob(".*.tmp"))

    def test_a_pipe_is_no_file_of_rollouts(self, tmp_path: Path, merged: RunArtifacts) -> None:
        merged.rollouts.unlink()
        os.mkfifo(merged.rollouts)

        result = self.make(tmp_path, merged).export(merged)

        assert "is not a regular file" in result.message

    def test_what_was_published_before_a_crash_is_recognised(self, tmp_path: Path, merged: RunArtifacts) -> None:
        first = self.make(tmp_path, merged).export(merged)

        assert self.make(tmp_path, merged).find_complete(merged) == first

    @pytest.mark.parametrize("is_named", [True, False], ids=["named", "default"])
    def test_its_own_export_of_an_earlier_result_is_replaced(self, is_named: bool, tmp_path: Path) -> None:
        values = {key: value for key, value in self.settings(tmp_path).items() if is_named or key != self.key}
        made, first = self.exported_before_it_changed(tmp_path, values)

        second = finish_benchmark(made.merged, made.shards, benchmark="bench", retry=LONGER, exports={self.name: values})
        again = finish_benchmark(made.merged, made.shards, benchmark="bench", retry=LONGER, exports={self.name: values})

        found = second.exports[self.name]
        assert found.is_success, found.message
        assert found.evidence != first
        assert again.exports[self.name].message == "already exported"
        place = Path(read_events(made.merged.exports)[-1].destination)
        assert [path for path in place.parent.iterdir() if path.name.endswith(".tmp")] == []
        assert found.evidence is not None
        assert second.receipt is not None
        assert arrived_at(read_events(made.merged.exports), second.receipt.output.sha256) == [str(place)]

    def test_an_earlier_export_that_somebody_changed_is_untouched(self, tmp_path: Path) -> None:
        values = self.settings(tmp_path)
        made, _ = self.exported_before_it_changed(tmp_path, values)
        place = self.place(tmp_path)
        mine = place if place.is_file() else next(path for path in place.iterdir() if path.name != "manifest.jsonl")
        mine.write_bytes(mine.read_bytes() + b"mine")
        before = mine.read_bytes()

        result = finish_benchmark(made.merged, made.shards, benchmark="bench", retry=LONGER, exports={self.name: values})

        assert "Move it away" in result.exports[self.name].message
        assert mine.read_bytes() == before
        assert result.receipt is not None
        assert arrived_at(read_events(made.merged.exports), result.receipt.output.sha256) == []

    def exported_before_it_changed(self, tmp_path: Path, values: dict[str, Any]) -> tuple[Plan, str | None]:
        """A benchmark that is exported, and whose shards then got a result that changes its projection."""
        made = plan(tmp_path / "b", shards=2, tasks=4)
        fill_all(made, lambda task, _: [failed(terminal=False)] * 3 if task == 0 else answered())
        done = finish_benchmark(
            made.merged, made.shards, benchmark="bench", retry=RetrySettings(), exports={self.name: values}
        ).exports[self.name]
        assert done.is_success, done.message
        fill(made, 0, lambda task, _: answered() if task == 0 else [])
        return made, done.evidence

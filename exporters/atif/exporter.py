"""The exporter ``atif``: one ATIF file a rollout and a manifest with their digests, in a new folder."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from collector import durable
from collector.artifacts import RunArtifacts
from collector.errors import CorruptArtifactError, GymEvalError
from collector.version import installed_version
from exporters.atif.bundle import MANIFEST_NAME, Published, find_bundle, is_as_published, publish_bundle
from exporters.atif.profile import Choice, Context
from exporters.base import ADVICE, EXISTS, Exporter, ExportResult, RunExportConfig, Text
from exporters.facts import read_run_facts
from exporters.source import ExportError


def _not_blank(value: object) -> object:
    if isinstance(value, str) and not value.strip():
        raise ValueError("must not be blank")
    return value


class ExportAtifConfig(RunExportConfig):
    """Settings of the exporter ``atif``."""

    output_dirpath: Annotated[Path, BeforeValidator(_not_blank)] | None = Field(
        default=None, description="a folder that does not exist yet; default: <stem>_atif beside the rollouts"
    )
    session_id: Text | None = Field(default=None, description="names the session in each trajectory; default: the run's id")
    agent_version: Text = Field(description="the version of the agent, as text: 1.0.0")
    profile: Choice = Field(default=Choice.AUTO, description="strict, lossy, or auto: strict where a row has an observation")
    schema_version: Literal["1.7", "1.8"] = Field(default="1.7", description="of the format; 1.8 has a place for sound")


class AtifExporter(Exporter[ExportAtifConfig]):
    """Publishes a whole folder or nothing; one that exists is touched only when it is our own of an earlier projection."""

    Config: ClassVar[type[RunExportConfig]] = ExportAtifConfig
    needs_answers: ClassVar[bool] = True

    @property
    def folder(self) -> Path:
        """Where the trajectories go."""
        return self.config.output_dirpath or RunArtifacts(self.config.rollouts_jsonl_fpath).companion("_atif")

    @property
    def destination(self) -> str:
        """The folder's absolute path."""
        return str(self.folder.absolute())

    def publish(self, artifacts: RunArtifacts) -> ExportResult:
        """Convert every row, then publish the folder."""
        folder = self.folder
        if (folder.exists() or folder.is_symlink()) and not self._is_superseded():
            raise ExportError(EXISTS, ADVICE, folder)
        context = self._context(artifacts)

        def check() -> None:
            self.check_unchanged(artifacts)

        return self._result(publish_bundle(artifacts, folder, context, check=check, may_replace=self._is_superseded))

    def _is_superseded(self) -> bool:
        return any(self.still_stands(evidence) for evidence in self.superseded) and is_as_published(self.folder)

    def still_stands(self, evidence: str | None) -> bool:
        """Whether the folder's manifest is the one that was published."""
        try:
            data = (self.folder / MANIFEST_NAME).read_bytes()
        except OSError:
            return False
        return hashlib.sha256(data).hexdigest() == evidence

    def sweep(self) -> None:
        """Remove the unpublished folders of killed exports beside the destination."""
        if self.folder.parent.is_dir():
            durable.sweep(self.folder)

    def find_complete(self, artifacts: RunArtifacts) -> ExportResult | None:
        """The folder that an interrupted or failed export published, byte for byte what this one would; durable then."""
        if not self.folder.is_dir():
            return None
        try:
            found = find_bundle(artifacts, self.folder, self._context(artifacts))
        except (GymEvalError, OSError):
            return None
        if found is None:
            return None
        durable.sync_dir(self.folder.absolute().parent)
        return self._result(found)

    def _context(self, artifacts: RunArtifacts) -> Context:
        try:
            facts = read_run_facts(artifacts)
        except CorruptArtifactError as error:
            raise ExportError(str(error)) from error
        session = self.config.session_id or facts.run_id
        if session is None:
            raise ExportError("the run has no id to name the session by.", "Set session_id.", artifacts.rollouts)
        return Context(
            session_id=session,
            agent_name=facts.agent or "unknown",
            agent_version=self.config.agent_version,
            exporter_version=installed_version() or "unknown",
            profile=self.config.profile,
            schema_version="ATIF-v1.8" if self.config.schema_version == "1.8" else "ATIF-v1.7",
        )

    def _result(self, published: Published) -> ExportResult:
        return ExportResult.succeeded(
            "",
            f"trajectories: {published.trajectories}",
            f"folder: {self.folder}",
            f"manifest sha256: {published.manifest_sha256}",
            evidence=published.manifest_sha256,
        )

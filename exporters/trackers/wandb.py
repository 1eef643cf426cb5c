"""The exporter ``wandb``: one W&B run for one finished run, online or into a folder that ``wandb sync`` sends later."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

import orjson
from pydantic import AfterValidator, Field

from collector import durable
from collector.artifacts import RunArtifacts
from exporters.base import Exporter, ExportResult, RunExportConfig, Text
from exporters.source import ExportError
from exporters.trackers.child import call, missing_package, require_package
from exporters.trackers.mlflow import document_of
from exporters.trackers.names import ARTIFACT_LONGEST, WANDB_LONGEST, bounded, wandb_name
from exporters.trackers.package import Package, named, omitted_lines, read_package, same_as_sent
from exporters.trackers.settings import TrackerConfig

#: W&B refuses these in the name of a project.
_NOT_IN_PROJECT: Final = "/\\#?%:"
_PROJECT_LONGEST: Final = 128


def _check_project(value: str) -> str:
    wrong = sorted({sign for sign in value if sign in _NOT_IN_PROJECT or not sign.isprintable()})
    if wrong:
        raise ValueError(f"a project's name has none of {' '.join(map(repr, wrong))}")
    if len(value) > _PROJECT_LONGEST:
        raise ValueError(f"a project's name has at most {_PROJECT_LONGEST} characters")
    return value


Project = Annotated[Text, AfterValidator(_check_project)]


class Mode(StrEnum):
    """Where it goes at once."""

    ONLINE = "online"
    OFFLINE = "offline"


class ExportWandbConfig(TrackerConfig):
    """Settings of the exporter ``wandb``. The key stays in WANDB_API_KEY."""

    project: Project
    entity: Text | None = None
    name: Text | None = Field(default=None, description="what the run is called; default: the benchmark's name")
    group: Text | None = None
    mode: Mode = Field(default=Mode.ONLINE, description="offline writes a folder for 'wandb sync'")
    base_url: Text | None = Field(default=None, description="a server of one's own; default: WANDB_BASE_URL or W&B's cloud")
    output_dirpath: Path | None = Field(
        default=None, description="folder of local files; default: <stem>_wandb beside the rollouts"
    )


class WandbExporter(Exporter[ExportWandbConfig]):
    """Known again by its id: an unchanged run is a success without a write, a changed one a new version."""

    Config: ClassVar[type[RunExportConfig]] = ExportWandbConfig

    @property
    def folder(self) -> Path:
        """Where W&B keeps its files, and we what was exported."""
        return self.config.output_dirpath or RunArtifacts(self.config.rollouts_jsonl_fpath).companion("_wandb")

    @property
    def destination(self) -> str:
        """Mode, server, entity, project and the folder."""
        place = "/".join(filter(None, [self.config.base_url, self.config.entity, self.config.project]))
        return f"{self.config.mode} {place} {self.folder.absolute()}"

    def missing(self) -> str | None:
        """The client, when it is not installed."""
        return missing_package("wandb", "wandb")

    def still_stands(self, evidence: str | None) -> bool:
        """Whether what would be sent now is what was sent; the server is not asked."""
        return same_as_sent(self.config, evidence)

    def publish(self, artifacts: RunArtifacts) -> ExportResult:
        """Send the run, or write what ``wandb sync`` sends."""
        require_package("wandb", "wandb")
        if self.config.mode is Mode.ONLINE and not os.environ.get("WANDB_API_KEY") and not _has_login():
            raise ExportError("there is no key for W&B.", "Set WANDB_API_KEY, or mode=offline and send it later.")
        package = read_package(artifacts, with_rollouts=self.config.upload_rollouts)
        record = _Record(self.folder, package)
        versions = record.versions()
        same = next((number for number, digest in versions.items() if digest == package.digest), None)
        if same is not None:
            said = [f"id: {package.version(same)}", f"folder: {self.folder}"]
            return ExportResult.succeeded("already exported", *said, evidence=package.digest)
        number = 1 if self.config.replace or not versions else max(versions) + 1
        durable.make_dir(self.folder)
        answer = call(
            "exporters.trackers.wandb_sender:send",
            self.payload(package, number),
            timeout_s=self.config.timeout_s,
            environ=self._environ(),
        )
        record.add(number, replace=self.config.replace)
        said = [f"id: {package.version(number)}", *([f"address: {answer['url']}"] if answer.get("url") else [])]
        counts = f"{len(package.flat.metrics)} metrics, {len(package.flat.params)} params, {len(package.files)} files"
        where = f"folder: {answer['folder']}"
        return ExportResult.succeeded("", *said, where, counts, *omitted_lines(package.flat), evidence=package.digest)

    def payload(self, package: Package, number: int) -> dict[str, Any]:
        """Everything that is sent."""
        found = named(package.flat, wandb_name, longest=WANDB_LONGEST)
        identity = {
            "id": package.version(number),
            "digest": package.digest,
            "run_id": package.run_id,
            "benchmark": package.benchmark,
            "partial": package.partial,
            "names": found.originals,
            "omitted": list(package.flat.omitted)[:1000],
        }
        label = bounded(f"gym-eval-{package.version(number)}", ARTIFACT_LONGEST)
        return {
            "project": self.config.project,
            "entity": self.config.entity,
            "group": self.config.group,
            "name": self.config.name or package.benchmark,
            "id": package.version(number),
            "mode": self.config.mode.value,
            "base_url": self.config.base_url,
            "dir": str(self.folder.absolute()),
            "config": {**found.params, "gym_eval": identity},
            "summary": {**found.metrics, **found.texts},
            "artifact": label,
            "files": [str(path.absolute()) for path in package.files],
            "document": orjson.dumps(document_of(package, found), option=orjson.OPT_INDENT_2).decode(),
            "wait_s": self.config.request_timeout_s,
        }

    def _environ(self) -> dict[str, str | None]:
        # An inherited id or mode would make it another run.
        inherited = dict.fromkeys(
            ("WANDB_RUN_ID", "WANDB_MODE", "WANDB_RESUME", "WANDB_RUN_GROUP", "WANDB_NAME", "WANDB_PROJECT")
        )
        return {**inherited, "WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"}


def _has_login() -> bool:
    netrc = Path(os.environ.get("NETRC") or "~/.netrc").expanduser()
    return netrc.is_file()


class _Record:
    """``gym-eval-<id>.json`` in the folder: which versions of this run were exported, with their digests."""

    def __init__(self, folder: Path, package: Package) -> None:
        self.path = folder / f"gym-eval-{package.id}.json"
        self.package = package

    def versions(self) -> dict[int, str]:
        """Version to digest. Raises ExportError for a file that is not ours."""
        try:
            data = orjson.loads(self.path.read_bytes())
            return {int(number): str(digest) for number, digest in data["versions"].items()}
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise ExportError("is not a record of exports.", "Remove it, or name another folder.", self.path) from error

    def add(self, number: int, *, replace: bool) -> None:
        """Keep that ``number`` was exported, instead of all others with ``replace``."""
        kept = {} if replace else self.versions()
        versions = {str(key): value for key, value in {**kept, number: self.package.digest}.items()}
        data = {"id": self.package.id, "versions": versions}
        durable.publish(self.path, orjson.dumps(data, option=orjson.OPT_INDENT_2) + b"\n")

"""The exporter ``wandb``: one W&B run for one finished run, online or into a folder that ``wandb sync`` sends later."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

from pydantic import AfterValidator, Field

from collector import durable
from collector.artifacts import RunArtifacts
from collector.errors import GymEvalError
from collector.settings import NamedPath
from collector.text.masked import masked_address
from exporters.base import Exporter, ExportResult, RunExportConfig, SwitchedOff, Text
from exporters.packages import missing_package, require_package
from exporters.source import ExportError
from exporters.trackers.child import call
from exporters.trackers.mlflow import document_of
from exporters.trackers.names import ARTIFACT_LONGEST, WANDB_LONGEST, bounded, wandb_name
from exporters.trackers.package import Package, named, omitted_lines, read_package
from exporters.trackers.settings import Server, TrackerConfig, check_server, variable_problem
from exporters.trackers.wandb_record import Arrived, Record
from exporters.trackers.work import work_folder

#: W&B refuses these in the name of a project.
_NOT_IN_PROJECT: Final = "/\\#?%:"
_PROJECT_LONGEST: Final = 128
#: Where W&B's client sends to when nobody says otherwise.
_CLOUD: Final = "https://api.wandb.ai"


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


#: What W&B's own variable may say, older words of its included, and what that is here; None switches the export off.
_MODES: Final[Mapping[str, Mode | None]] = {
    "": Mode.ONLINE,
    "online": Mode.ONLINE,
    "run": Mode.ONLINE,
    "shared": Mode.ONLINE,
    "offline": Mode.OFFLINE,
    "dryrun": Mode.OFFLINE,
    "disabled": None,
}
_MODE: Final = "WANDB_MODE"
_URL: Final = "WANDB_BASE_URL"


class ExportWandbConfig(TrackerConfig):
    """Settings of the exporter ``wandb``. The key stays in WANDB_API_KEY."""

    project: Project
    entity: Text | None = None
    name: Text | None = Field(default=None, description="what the run is called; default: the benchmark's name")
    group: Text | None = None
    mode: Mode | None = Field(
        default=None, description="offline writes a folder for 'wandb sync'; default: WANDB_MODE, or online"
    )
    base_url: Server | None = Field(default=None, description="a server of one's own; default: WANDB_BASE_URL or W&B's cloud")
    output_dirpath: NamedPath | None = Field(
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
    def mode(self) -> Mode:
        """Online or offline: as the settings say, else as WANDB_MODE does. A word that is none of W&B's counts as online."""
        return self.config.mode or _MODES.get(self.environ.get(_MODE, "")) or Mode.ONLINE

    @property
    def address(self) -> str:
        """The server that is exported to, as it is configured."""
        return self.config.base_url or self.environ.get(_URL) or _CLOUD

    @property
    def server(self) -> str | None:
        """The server, when one is asked at once."""
        return self.address if self.mode is Mode.ONLINE else None

    @property
    def place(self) -> str:
        """The project, on which server; offline nothing is on a server yet."""
        server = masked_address(self.address).rstrip("/") if self.mode is Mode.ONLINE else Mode.OFFLINE.value
        return "/".join(filter(None, [server, self.config.entity, self.config.project]))

    @property
    def destination(self) -> str:
        """Server, entity and project, or ``offline`` and the project, and the folder."""
        return f"{self.place} {self.folder.absolute()}"

    def missing(self) -> str | None:
        """The client, when it is not installed."""
        return missing_package("wandb", "wandb")

    @classmethod
    def settled(cls, values: Mapping[str, object], environ: Mapping[str, str]) -> Mapping[str, object] | SwitchedOff:
        """With the mode that WANDB_MODE names where ``values`` name none."""
        if values.get("mode") is not None or (word := environ.get(_MODE, "")) not in _MODES or not word:
            return values
        mode = _MODES[word]
        return SwitchedOff(f"{_MODE} is {word}") if mode is None else {**values, "mode": mode.value}

    def environment_problem(self, *, is_whole: bool = True) -> str | None:
        """What is wrong with WANDB_MODE and WANDB_BASE_URL, where they are asked for."""
        del is_whole
        word = self.environ.get(_MODE, "")
        if self.config.mode is None and _MODES.get(word, Mode.ONLINE) is None:
            return f"W&B is switched off by {_MODE}={word}: set mode to online or offline"
        if self.config.mode is None and word not in _MODES:
            return f"{_MODE} is {word!r}, and not online, offline or disabled"
        if self.mode is Mode.OFFLINE or self.config.base_url is not None or not self.environ.get(_URL):
            return None
        return variable_problem(_URL, self.environ[_URL], check_server)

    def still_stands(self, evidence: str | None) -> bool:
        """Whether what would be sent now is what was sent, and what waits for ``wandb sync`` is there; no server is asked."""
        artifacts = RunArtifacts(self.config.rollouts_jsonl_fpath)
        try:
            record = self._record(artifacts)
            return record.package.digest == evidence and record.arrived() is not None
        except (GymEvalError, OSError):
            return False

    def publish(self, artifacts: RunArtifacts) -> ExportResult:
        """Send the run and confirm that it arrived, or write what ``wandb sync`` sends."""
        require_package("wandb", "wandb")
        if (problem := self.environment_problem()) is not None:
            raise ExportError(f"{problem}.")
        is_online = self.mode is Mode.ONLINE
        if is_online and not os.environ.get("WANDB_API_KEY") and not _has_login():
            raise ExportError("there is no key for W&B.", "Set WANDB_API_KEY, or mode=offline and send it later.")
        record = self._record(artifacts)
        package = record.package
        self.check_unchanged(artifacts)
        if (before := record.arrived()) is not None:
            said = [f"id: {package.version(before.number)}", f"folder: {self.folder / (before.folder or '')}"]
            return ExportResult.succeeded("already exported", *said, evidence=package.digest)
        number = record.next_number(replace=self.config.replace)
        durable.make_dir(self.folder)
        record.sweep()
        with work_folder() as work:
            name = None if is_online else f"{package.version(number)}-{secrets.token_hex(4)}"
            files = work if name is None else self.folder.absolute() / name
            durable.make_dir(files)
            try:
                answer = call(
                    "exporters.trackers.wandb_sender:send",
                    self.payload(package, number, files, work),
                    timeout_s=self.config.timeout_s,
                    environ=self._environ(files),
                    address=self.address if is_online else None,
                )
            except ExportError:
                # Half of an export may be large, and whoever synced this folder later would send it.
                record.sweep()
                raise
        record.add(Arrived(number=number, digest=package.digest, folder=name), replace=self.config.replace)
        said = [f"id: {package.version(number)}", f"address: {answer['url']}" if is_online else f"folder: {answer['folder']}"]
        return ExportResult.succeeded("", *said, package.contents, *omitted_lines(package.flat), evidence=package.digest)

    def _record(self, artifacts: RunArtifacts) -> Record:
        package = read_package(artifacts, with_rollouts=self.config.upload_rollouts, report=self.config.report_fpath)
        return Record(self.folder, package, self.place)

    def payload(self, package: Package, number: int, files: Path, work: Path) -> dict[str, Any]:
        """Everything that is sent. ``files`` is where the client keeps its files, ``work`` vanishes with the client."""
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
            "mode": self.mode.value,
            "base_url": self.config.base_url,
            "dir": str(files),
            "work": str(work),
            "config": {**found.params, "gym_eval": identity},
            "summary": {**found.metrics, **found.texts},
            "artifact": label,
            "files": {str(path): digest for path, digest in package.files.items()},
            "document": document_of(package, found),
            "wait_s": self.config.request_timeout_s,
        }

    def _environ(self, files: Path) -> dict[str, str | None]:
        # An inherited id or mode would make it another run.
        inherited = dict.fromkeys(
            ("WANDB_RUN_ID", "WANDB_MODE", "WANDB_RESUME", "WANDB_RUN_GROUP", "WANDB_NAME", "WANDB_PROJECT")
        )
        # Home may be small, read-only, or another one when the files are sent on.
        places = dict.fromkeys(("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_DIR", "WANDB_ARTIFACT_DIR"), str(files))
        return {**inherited, **places, "WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"}


def _has_login() -> bool:
    netrc = Path(os.environ.get("NETRC") or "~/.netrc").expanduser()
    return netrc.is_file()

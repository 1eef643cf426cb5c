"""The exporter ``mlflow``: one MLflow run for one finished run, however often it is exported."""

from __future__ import annotations

import json
import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Final

from pydantic import Field

from collector.artifacts import RunArtifacts
from collector.text.masked import masked_address
from exporters.base import Exporter, ExportResult, RunExportConfig, Text
from exporters.facts import read_run_facts
from exporters.packages import missing_package, require_package
from exporters.source import ExportError
from exporters.trackers.child import call
from exporters.trackers.names import MLFLOW_LONGEST, digest_of, mlflow_name
from exporters.trackers.package import Named, Package, named, omitted_lines, read_package, same_as_sent
from exporters.trackers.settings import Store, TrackerConfig, check_store, variable_problem
from exporters.trackers.work import work_folder

#: Limits of MLflow's REST API: entries of one batch, characters of one value.
PARAMS_PER_BATCH: Final = 100
METRICS_PER_BATCH: Final = 1000
PARAM_LONGEST: Final = 6000
TAG_LONGEST: Final = 5000
_URI: Final = "MLFLOW_TRACKING_URI"
_ALLOW_FOLDER: Final = "MLFLOW_ALLOW_FILE_STORE"
#: With a driver behind it or not, as in mysql+pymysql://.
_DATABASE: Final = re.compile(r"(?:sqlite|postgresql|mysql|mssql)(?:\+\w+)?://")
_CUT: Final = " ... (cut; whole in gym_eval/export.json)"


class ExportMlflowConfig(TrackerConfig):
    """Settings of the exporter ``mlflow``. Credentials stay in MLflow's own environment variables."""

    tracking_uri: Store | None = Field(default=None, description="default: MLFLOW_TRACKING_URI")
    experiment_name: Text | None = Field(default=None, description="default: the benchmark's name")
    run_name: Text | None = Field(default=None, description="default: the run's stable id")


class MlflowExporter(Exporter[ExportMlflowConfig]):
    """Found again by a tag: an unchanged run is a success without a write, a changed one a new version."""

    Config: ClassVar[type[RunExportConfig]] = ExportMlflowConfig

    @property
    def uri(self) -> str | None:
        """Where the server is, or the store."""
        return self.config.tracking_uri or self.environ.get(_URI) or None

    @property
    def server(self) -> str | None:
        """Where runs are kept, when that is an address."""
        return self.uri

    @property
    def destination(self) -> str:
        """The server's address, without credentials, and the experiment, however it was named; a run is one of its own there.

        Raises CorruptArtifactError.
        """
        place = self.config.experiment_name or read_run_facts(RunArtifacts(self.config.rollouts_jsonl_fpath)).benchmark
        address = masked_address(self.uri or _URI).rstrip("/")
        return f"{address} {place} {self.config.rollouts_jsonl_fpath.absolute()}"

    def missing(self) -> str | None:
        """The client, or what it needs for a database, when it is not installed."""
        return missing_package("mlflow", "mlflow") or _missing_for(self.uri or "")

    def environment_problem(self, *, is_whole: bool = True) -> str | None:
        """What is wrong with the address in MLFLOW_TRACKING_URI, where that is asked for."""
        if self.config.tracking_uri is not None:
            return None
        if self.uri is None:
            return f"tracking_uri: is missing: set it, or {_URI}" if is_whole else None
        return variable_problem(_URI, self.uri, check_store)

    def still_stands(self, evidence: str | None) -> bool:
        """Whether what would be sent now is what was sent; the server is not asked."""
        return same_as_sent(self.config, evidence)

    def publish(self, artifacts: RunArtifacts) -> ExportResult:
        """Send the run and confirm that it arrived."""
        require_package("mlflow", "mlflow")
        uri = self.uri
        if (problem := self.environment_problem()) is not None or uri is None:
            raise ExportError(f"{problem}.")
        if (missing := _missing_for(uri)) is not None:
            raise ExportError(f"tracking_uri: {missing}.")
        package = read_package(artifacts, with_rollouts=self.config.upload_rollouts, report=self.config.report_fpath)
        self.check_unchanged(artifacts)
        with work_folder() as work:
            answer = call(
                "exporters.trackers.mlflow_sender:send",
                self.payload(package, uri, work),
                timeout_s=self.config.timeout_s,
                environ=self._environ(),
                address=uri,
            )
        lines = [f"run: {answer['run_id']}", f"experiment: {answer['experiment_id']}", f"id: {answer['id']}"]
        said = "already exported" if answer["is_unchanged"] else ""
        return ExportResult.succeeded(said, *lines, package.contents, *omitted_lines(package.flat), evidence=package.digest)

    def payload(self, package: Package, uri: str, work: Path) -> dict[str, Any]:
        """Everything that is sent, chunked as the server takes it. ``work`` vanishes with the client."""
        # A folder as a store keeps each name as a file.
        found = named(package.flat, mlflow_name, longest=MLFLOW_LONGEST, has_folders=_is_folder(uri))
        tags = {
            "gym_eval.id": package.id,
            "gym_eval.digest": package.digest,
            "gym_eval.run_id": package.run_id,
            "gym_eval.benchmark": package.benchmark,
            "gym_eval.partial": "true" if package.partial else "false",
            **found.texts,
            **{f"gym_eval.name.{digest_of(made)}": f"{made} = {name}" for made, name in found.originals.items()},
        }
        return {
            "uri": uri,
            "experiment": self.config.experiment_name or package.benchmark,
            "run_name": self.config.run_name,
            "id": package.id,
            "digest": package.digest,
            "replace": self.config.replace,
            "tags": {key: _cut(value, TAG_LONGEST) for key, value in tags.items()},
            "params": chunks({key: _cut(value, PARAM_LONGEST) for key, value in found.params.items()}, PARAMS_PER_BATCH),
            "metrics": chunks(found.metrics, METRICS_PER_BATCH),
            "files": {str(path): digest for path, digest in package.files.items()},
            "document": document_of(package, found),
            "work": str(work),
        }

    def _environ(self) -> dict[str, str | None]:
        return {
            # MLflow wants it said twice that runs are kept in a folder; naming one here says it.
            _ALLOW_FOLDER: os.environ.get(_ALLOW_FOLDER, "true"),
            "MLFLOW_HTTP_REQUEST_TIMEOUT": str(self.config.request_timeout_s),
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
            "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
            "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "DO_NOT_TRACK": "true",
        }


def _is_folder(uri: str) -> bool:
    return "://" not in uri or uri.startswith("file:")


def _missing_for(uri: str) -> str | None:
    """What the client lacks for a store like ``uri``; None when it has all."""
    if _DATABASE.match(uri) is None or find_spec("sqlalchemy") is not None:
        return None
    return "the client for MLflow's servers is installed, and a database needs all of it: pip install mlflow"


def document_of(package: Package, found: Named) -> str:
    """JSON that says what the names were, what is not sent, and every value whole."""
    told = {
        "id": package.id,
        "digest": package.digest,
        "names": found.originals,
        "omitted": package.flat.omitted,
        "params": package.flat.params,
        "texts": package.flat.texts,
    }
    # As ASCII: a setting may hold half of a surrogate pair.
    return json.dumps(told, indent=2)


def chunks(values: dict[str, Any], size: int) -> list[dict[str, Any]]:
    """``values`` in parts of at most ``size``; none is empty."""
    items = list(values.items())
    return [dict(items[start : start + size]) for start in range(0, len(items), size)]


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - len(_CUT)] + _CUT

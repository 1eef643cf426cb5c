"""The contract of an exporter: the files of a finished run in, one result out.

What an operator can mend (a full disk, a missing file, rows that cannot be converted) is a failed result; a bug is an
exception. Nothing partial is ever left where others read.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar, Final, Generic, TypeVar

from pydantic import Field

from collector import durable
from collector.artifacts import RunArtifacts
from collector.errors import GymEvalError
from collector.settings import StrictModel
from exporters.source import ExportError, SourceState, check_source, state_of
from merge.inputs.source_files import SourceFiles

#: A string with at least one visible character. A number is refused, not turned into text.
Text = Annotated[str, Field(strict=True, pattern=r"\S")]

#: What lies at the destination is somebody's, or was changed since it was exported, or is an export of another run.
EXISTS: Final = "the destination exists already, and is not as this run exported it."
ADVICE: Final = "Move it away, or name another place."


class ExportState(StrEnum):
    """How an export ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ExportResult:
    """How an export ended, in one sentence, with counts and paths, or reasons, as details."""

    state: ExportState
    message: str = ""
    details: tuple[str, ...] = ()
    #: What proves later that the export still stands (a digest, a run's id); None when nothing does.
    evidence: str | None = None

    @classmethod
    def failed(cls, text: str, details: tuple[str, ...] = ()) -> ExportResult:
        """A failure that an operator can act on."""
        return cls(ExportState.FAILED, text, details)

    @classmethod
    def succeeded(cls, text: str = "", *details: str, evidence: str | None = None) -> ExportResult:
        """A complete export."""
        return cls(ExportState.SUCCEEDED, text, details, evidence)

    @property
    def is_success(self) -> bool:
        return self.state is ExportState.SUCCEEDED

    def lines(self, name: str) -> list[str]:
        """What a person reads: ``Export atif: succeeded`` and the details, or the failure and its reasons."""
        reason = "" if self.is_success or not self.message else f": {self.message}"
        said = [self.message] if self.is_success and self.message else []
        return [f"Export {name}: {self.state}{reason}", *(f"  {line}" for line in (*said, *self.details))]


@dataclass(frozen=True, slots=True)
class SwitchedOff:
    """An exporter that is configured and is not to export, and what says so, as in ``X is disabled``."""

    reason: str


class RunExportConfig(StrictModel):
    """What every exporter needs. The path of the artifacts that are exported wins over the one given here."""

    rollouts_jsonl_fpath: Path
    allow_partial: bool = Field(default=False, description="export a run of which shards or rollouts are unfinished")


C_co = TypeVar("C_co", bound=RunExportConfig, covariant=True)


def told(error: OSError | GymEvalError, destination: str = "") -> str:
    """What ``error`` says to people: the file that was wanted, not what it is called while it is written, and why not."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    # An error about two files is about making the second; a write that fails names none.
    name = error.filename2 or error.filename
    place = durable.asked_for(os.fsdecode(name)) if name else destination
    return f"{place}: {error.strerror}" if place else error.strerror


class Exporter(ABC, Generic[C_co]):
    """Exports one finished run. Made for one ``export`` call, or for one question about an earlier one."""

    Config: ClassVar[type[RunExportConfig]]
    #: Whether it can do nothing with rows that have no answer of a model, such as those of commands.
    needs_answers: ClassVar[bool] = False

    def __init__(self, config: C_co) -> None:
        self.config = config
        #: The variables that settings leave things to: this process's, or those of the job that will export.
        self.environ: Mapping[str, str] = os.environ
        self._checked: SourceState | None = None
        #: Evidence of exports of earlier projections of the run to this destination.
        self.superseded: Collection[str] = ()

    @property
    @abstractmethod
    def destination(self) -> str:
        """Where it goes, the same for every export to the same place: two exports to one place exclude each other."""

    @abstractmethod
    def publish(self, artifacts: RunArtifacts) -> ExportResult:
        """Export ``artifacts`` wholly, or raise ExportError or OSError and leave nothing. Called by ``export`` only."""

    def export(self, artifacts: RunArtifacts) -> ExportResult:
        """Export ``artifacts``. Operational problems become a failed result; programming errors propagate."""
        try:
            self._check_destination(artifacts)
            self._checked = state_of(artifacts)
            check_source(artifacts, allow_partial=self.config.allow_partial)
            return self.publish(artifacts)
        except ExportError as error:
            return ExportResult.failed(str(error), error.details)
        except GymEvalError as error:
            return ExportResult.failed(str(error))
        except OSError as error:
            return ExportResult.failed(told(error, self.destination))

    def _check_destination(self, artifacts: RunArtifacts) -> None:
        """Raise ExportError for the place of a file of the run, there or not: as its receipt an export would break it."""
        place = Path(self.destination)
        same = SourceFiles([artifacts]).same_as(place) if place.is_absolute() else None
        if same is not None:
            raise ExportError(f"is the place of {same.name}, a file of the run.", "Name another place.", place)

    def check_unchanged(self, artifacts: RunArtifacts) -> None:
        """Raise ExportError when a file of the run is not the one that was checked: it may have been read half and half.

        Called by ``publish`` when everything is read and before anything can be seen.
        """
        if self._checked is not None and state_of(artifacts) != self._checked:
            raise ExportError("was changed while it was read.", "Export again when it is whole.", artifacts.rollouts)

    def missing(self) -> str | None:
        """What has to be installed before this exporter can work, with the command; None when nothing. Asked at submission."""
        return None

    @classmethod
    def settled(cls, values: Mapping[str, object], environ: Mapping[str, str]) -> Mapping[str, object] | SwitchedOff:
        """The settings ``values`` with what variables decide of them.

        Asked at submission, before the settings are checked, so that all jobs and commands of a run export alike.
        """
        del environ
        return values

    def environment_problem(self, *, is_whole: bool = True) -> str | None:
        """Why it cannot work with the variables of ``environ``; None when it can, as far as they tell.

        Unless ``is_whole`` a variable that is missing there may be set where the export is made. Asked at submission, and by
        ``publish`` of exporters that have such variables.
        """
        del is_whole
        return None

    @property
    def server(self) -> str | None:
        """The address of the server that an export asks; None when it asks none. Asked at submission."""
        return None

    def still_stands(self, evidence: str | None) -> bool:
        """Whether an export that succeeded with ``evidence`` is still there. Asked before it would be repeated."""
        del evidence
        return True

    def supersede(self, evidence: Collection[str]) -> None:
        """Let ``publish`` replace what lies at the destination if it is, unchanged, an export that one of ``evidence`` proves.

        They are of earlier projections of the same run. Called before ``export``; exporters that keep versions need not look.
        """
        self.superseded = evidence

    def sweep(self) -> None:
        """Remove what killed exports to this destination left. The caller holds the destination's lock."""

    def find_complete(self, artifacts: RunArtifacts) -> ExportResult | None:
        """The result of an earlier export that was not recorded as succeeded, when all of it is there; None otherwise."""
        del artifacts
        return None

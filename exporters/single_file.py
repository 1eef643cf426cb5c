"""An export that is one new file: written from front to back, published in one rename, known again by its digest."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

from pydantic import Field

from collector import durable
from collector.artifacts import RunArtifacts
from collector.errors import GymEvalError
from collector.settings import NamedPath
from exporters.base import ADVICE, EXISTS, Exporter, ExportResult, RunExportConfig
from exporters.source import ExportError
from merge.publication.receipt import file_sha256


class FileExportConfig(RunExportConfig):
    """Settings of an exporter that makes one file."""

    output_dirpath: NamedPath | None = Field(default=None, description="the file's directory; its name is that of the rollouts")
    output_fpath: NamedPath | None = Field(
        default=None, description="a file that does not exist yet; default: beside the rollouts"
    )


class _Target(Protocol):
    def write(self, data: bytes) -> None: ...


class Sink:
    """A binary file that only grows, as writers of formats expect one; its digest is that of all bytes."""

    mode = "wb"

    def __init__(self, target: _Target | None) -> None:
        self._target = target
        self._hasher = hashlib.sha256()
        self._size = 0
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Add ``data``."""
        given = bytes(data)
        self._hasher.update(given)
        if self._target is not None:
            self._target.write(given)
        self._size += len(given)
        return len(given)

    def tell(self) -> int:
        """Bytes so far."""
        return self._size

    def flush(self) -> None:
        """Nothing: whoever published the target makes it durable."""

    def close(self) -> None:
        """Nothing: the target is closed by its owner."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    @property
    def sha256(self) -> str:
        """In hex."""
        return self._hasher.hexdigest()


F_co = TypeVar("F_co", bound=FileExportConfig, covariant=True)


class FileExporter(Exporter[F_co]):
    """Subclasses write the bytes. The same run gives the same bytes."""

    #: What the default name ends with.
    tag: ClassVar[str]

    @abstractmethod
    def write(self, artifacts: RunArtifacts, sink: Sink) -> int:
        """Write the whole file and return its number of rollouts. Raises ExportError, OSError."""

    @property
    def file(self) -> Path:
        """Where it goes."""
        if self.config.output_fpath is not None:
            return self.config.output_fpath
        beside = RunArtifacts(self.config.rollouts_jsonl_fpath).companion(self.tag)
        return beside if self.config.output_dirpath is None else self.config.output_dirpath / beside.name

    @property
    def destination(self) -> str:
        """The file's absolute path."""
        return str(self.file.absolute())

    def publish(self, artifacts: RunArtifacts) -> ExportResult:
        """Write a new file; one that exists is touched only when it is our own of an earlier projection."""
        path = self.file
        is_renewed = self._is_superseded()
        if not is_renewed and (path.exists() or path.is_symlink()):
            raise ExportError(EXISTS, ADVICE, path)
        durable.make_dir(path.absolute().parent)
        with durable.staged(path, is_new=not is_renewed) as staged:
            sink = Sink(staged)
            count = self.write(artifacts, sink)
            if not count:
                raise ExportError("there are no rows.", "Nothing was published.", artifacts.rollouts)
            self.check_unchanged(artifacts)
            if is_renewed and not self._is_superseded():
                raise ExportError("was changed while a new one was made.", "Move it away, and export again.", path)
        return self._result(count, sink)

    def _is_superseded(self) -> bool:
        path = self.file
        return bool(self.superseded) and path.is_file() and not path.is_symlink() and file_sha256(path) in self.superseded

    def still_stands(self, evidence: str | None) -> bool:
        """Whether the file is the one that was published."""
        try:
            return file_sha256(self.file) == evidence
        except OSError:
            return False

    def sweep(self) -> None:
        """Remove the unpublished files of killed exports."""
        durable.sweep(self.file)

    def find_complete(self, artifacts: RunArtifacts) -> ExportResult | None:
        """The file that an interrupted or failed export published, byte for byte what this one would; durable then."""
        if not self.file.is_file():
            return None
        sink = Sink(None)
        try:
            count = self.write(artifacts, sink)
        except (GymEvalError, OSError):
            return None
        if not self.still_stands(sink.sha256):
            return None
        durable.sync_dir(self.file.absolute().parent)
        return self._result(count, sink)

    def _result(self, count: int, sink: Sink) -> ExportResult:
        return ExportResult.succeeded(
            "", f"rollouts: {count}", f"file: {self.file}", f"sha256: {sink.sha256}", evidence=sink.sha256
        )

"""The receipt ``<stem>_merge.json`` (format 1): what a projection was made from, and the digests of all that was published.

Published last: while it agrees with the files it names, they are one generation.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Literal

import orjson
from pydantic import Field, ValidationError

from collector import jsonl
from collector.artifacts import RunArtifacts
from collector.errors import CorruptArtifactError, GymEvalError
from collector.settings import RetrySettings, StrictModel
from merge.legacy import read_legacy
from merge.publish import Written
from merge.shards import ShardView, read_shard

FORMAT: Final = 1
_CHUNK: Final = 8 << 20


class InputRecord(StrictModel):
    """One shard as it was merged. ``path`` is relative to the receipt's directory when the shard lies below it."""

    path: str
    size_bytes: int = Field(ge=0)
    manifest_sha256: str
    #: Over the state, place and checksum of every rollout of the shard.
    state_sha256: str


class OutputRecord(StrictModel):
    """The projection."""

    path: str
    rows: int = Field(ge=0)
    size_bytes: int = Field(ge=0)
    sha256: str


class Receipt(StrictModel):
    """The record itself. ``partial`` means that shards or unfinished rollouts are not in it, by request."""

    partial: bool = False
    schema_version: Literal[1] = FORMAT
    run_id: str
    benchmark: str
    #: Who answered, as the metrics file labels it.
    agent: str
    output: OutputRecord
    inputs: tuple[InputRecord, ...]
    missing_shards: tuple[int, ...] = ()
    coverage_sha256: str
    aggregate_sha256: str

    def encode(self) -> bytes:
        """The file's bytes: indented JSON with a final newline; ``partial`` is there, and first, only when it is true."""
        fields = self.model_dump(mode="json")
        if not self.partial:
            del fields["partial"]
        return orjson.dumps(fields, option=orjson.OPT_INDENT_2) + b"\n"


class ProjectionState(StrEnum):
    """What a look at a published projection finds."""

    VERIFIED = "verified"
    ABSENT = "absent"
    #: The inputs went on since it was made.
    STALE = "stale"
    #: A file is not the one that was published: edited, lost, or left by a crash in the middle of a publication.
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class ProjectionCheck:
    """The finding, in one sentence, and the receipt when there is one."""

    state: ProjectionState
    reason: str
    receipt: Receipt | None = None


def parse_receipt(data: bytes, path: Path) -> Receipt:
    """The receipt in ``data``. Raises CorruptArtifactError for another format number or any unknown or missing key."""
    try:
        value = jsonl.loads(data)
        version = value.get("schema_version") if isinstance(value, dict) else None
        if version != FORMAT:
            what = f"receipt format {version!r} is not supported (this program reads format {FORMAT})."
            raise CorruptArtifactError(path, 0, what, "Use the version of gym-eval that wrote it, or merge again elsewhere.")
        return Receipt.model_validate(value)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise CorruptArtifactError(path, 0, f"not a receipt ({problems}).") from error
    except ValueError as error:
        raise CorruptArtifactError(path, 0, f"not JSON ({error}).") from error


def read_receipt(path: Path) -> Receipt | None:
    """The receipt at ``path``; None when there is no such file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    return parse_receipt(data, path)


def input_record(view: ShardView, merged: RunArtifacts) -> InputRecord:
    """What the receipt keeps of one shard."""
    return InputRecord(
        path=_relative(view.artifacts.rollouts, merged),
        size_bytes=view.marks[view.artifacts.rollouts].size_bytes,
        manifest_sha256=hashlib.sha256(view.manifest.encode()).hexdigest(),
        state_sha256=view.state_sha256,
    )


def output_record(written: Written, merged: RunArtifacts) -> OutputRecord:
    """What the receipt keeps of the projection."""
    return OutputRecord(path=merged.rollouts.name, rows=written.rows, size_bytes=written.size_bytes, sha256=written.sha256)


def check_projection(merged: RunArtifacts, shards: Sequence[ShardView] | None = None) -> ProjectionCheck:
    """Whether the projection at ``merged`` is whole and still says what its inputs say. Changes nothing.

    ``shards`` are its inputs when the caller has read them already.
    """
    try:
        receipt = read_receipt(merged.receipt)
    except CorruptArtifactError as error:
        return ProjectionCheck(ProjectionState.DAMAGED, str(error))
    if receipt is None:
        return ProjectionCheck(ProjectionState.ABSENT, f"there is no receipt {merged.receipt.name}.")
    return (
        _check_files(merged, receipt)
        or _check_inputs(merged, receipt, shards)
        or ProjectionCheck(ProjectionState.VERIFIED, f"{receipt.output.rows} rows of {len(receipt.inputs)} inputs.", receipt)
    )


def _check_files(merged: RunArtifacts, receipt: Receipt) -> ProjectionCheck | None:
    wanted = {
        merged.rollouts: receipt.output.sha256,
        merged.coverage: receipt.coverage_sha256,
        merged.aggregate: receipt.aggregate_sha256,
    }
    for path, digest in wanted.items():
        if not path.is_file():
            return ProjectionCheck(ProjectionState.DAMAGED, f"{path.name} is missing.", receipt)
        if file_sha256(path) != digest:
            return ProjectionCheck(ProjectionState.DAMAGED, f"{path.name} is not the file that was published.", receipt)
    return None


def _check_inputs(merged: RunArtifacts, receipt: Receipt, shards: Sequence[ShardView] | None) -> ProjectionCheck | None:
    base = merged.rollouts.absolute().parent
    try:
        views = shards or _read_again([RunArtifacts(base / path) for path in dict.fromkeys(i.path for i in receipt.inputs)])
    except (GymEvalError, OSError) as error:
        return ProjectionCheck(ProjectionState.STALE, f"an input cannot be read: {error}", receipt)
    if tuple(input_record(view, merged) for view in views) != receipt.inputs:
        return ProjectionCheck(ProjectionState.STALE, "the inputs went on since it was made.", receipt)
    return None


def _read_again(inputs: Sequence[RunArtifacts]) -> list[ShardView]:
    """The inputs as they stand now: shards of a run, or files without a manifest."""
    retry = RetrySettings()
    if all(artifacts.manifest.exists() for artifacts in inputs):
        return [read_shard(artifacts, retry) for artifacts in inputs]
    return [shard for agent in read_legacy(inputs, retry).agents for shard in agent.shards]


def file_sha256(path: Path) -> str:
    """SHA-256 of the bytes of ``path``, in hex."""
    hasher = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            hasher.update(chunk)
    return hasher.hexdigest()


def _relative(path: Path, merged: RunArtifacts) -> str:
    base = merged.rollouts.absolute().parent.resolve()
    whole = path.absolute().resolve()
    # A run's directory can be moved or mounted elsewhere as a whole; its receipt then still finds the shards.
    return os.path.relpath(whole, base) if whole.is_relative_to(base) else str(whole)

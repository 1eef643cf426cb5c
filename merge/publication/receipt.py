"""The receipt ``<stem>_merge.json`` (format 1): what a projection was made from, and the digests of all that was published.

Published last: while it agrees with the files it names, they are one generation.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final, Literal

import orjson
from pydantic import Field, ValidationError

from collector import durable, jsonl
from collector.errors import CorruptArtifactError
from collector.settings import StrictModel

FORMAT: Final = 1
_CHUNK: Final = 8 << 20


class InputRecord(StrictModel):
    """One shard as it was merged. ``path`` is relative to the receipt's directory when the shard lies below it."""

    path: str = Field(pattern=r"^[^\x00]+$")
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


def parse_receipt(data: bytes, path: Path) -> Receipt:
    """The receipt in ``data``. Raises CorruptArtifactError for another format number or any unknown or missing key."""
    try:
        value = jsonl.loads(data)
        version = value.get("schema_version") if isinstance(value, dict) else None
        if version != FORMAT:
            what = f"receipt format {version!r} is not supported (this program reads format {FORMAT})."
            raise CorruptArtifactError(path, 0, what, "Use the version of gym-eval that wrote it, or merge again elsewhere.")
        if b"\\ud" in data.lower():
            jsonl.require_utf8(value)
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


def name_of_input(path: Path, rollouts: Path) -> str:
    """What the receipt of the merged ``rollouts`` calls the input at ``path``.

    A run's directory can be moved or mounted elsewhere as a whole; its receipt then still finds the shards.
    """
    base, whole = durable.real_path(rollouts.parent), durable.real_path(path)
    return os.path.relpath(whole, base) if whole.is_relative_to(base) else str(whole)


def file_sha256(path: Path) -> str:
    """SHA-256 of the bytes of ``path``, in hex."""
    hasher = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            hasher.update(chunk)
    return hasher.hexdigest()

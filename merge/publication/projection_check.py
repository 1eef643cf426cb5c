"""Whether a published projection is whole and still says what its inputs say, and what a receipt keeps of each of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from collector.artifacts import RunArtifacts
from collector.errors import CorruptArtifactError, GymEvalError
from collector.settings import RetrySettings
from collector.text.counted import counted
from merge.inputs.shards import ShardView, read_shard
from merge.legacy.inputs import read_legacy
from merge.publication.publish import Written
from merge.publication.receipt import InputRecord, OutputRecord, Receipt, file_sha256, name_of_input, read_receipt
from merge.rows.blocks import read_rows


class ProjectionState(StrEnum):
    """What a look at a published projection finds."""

    VERIFIED = "verified"
    ABSENT = "absent"
    #: The inputs went on since it was made.
    STALE = "stale"
    #: A file is not the one that was published: edited, lost, or left by a crash in the middle of a publication.
    DAMAGED = "damaged"
    #: It is what was published, and a row of an input is no longer the one that the input's journal recorded.
    INPUT_DAMAGED = "input_damaged"


@dataclass(frozen=True, slots=True)
class ProjectionCheck:
    """The finding, in one sentence, and the receipt when there is one."""

    state: ProjectionState
    reason: str
    receipt: Receipt | None = None


def input_record(view: ShardView, merged: RunArtifacts) -> InputRecord:
    """What the receipt keeps of one shard."""
    return InputRecord(
        path=name_of_input(view.artifacts.rollouts, merged.rollouts),
        size_bytes=view.marks[view.artifacts.rollouts].size_bytes,
        manifest_sha256=hashlib.sha256(view.manifest.encode()).hexdigest(),
        state_sha256=view.state_sha256,
    )


def output_record(written: Written, merged: RunArtifacts) -> OutputRecord:
    """What the receipt keeps of the projection."""
    return OutputRecord(path=merged.rollouts.name, rows=written.rows, size_bytes=written.size_bytes, sha256=written.sha256)


def check_projection(
    merged: RunArtifacts, shards: Sequence[ShardView] | None = None, *, reads_rows: bool = False
) -> ProjectionCheck:
    """Whether the projection at ``merged`` is whole and still says what its inputs say. Changes nothing.

    ``shards`` are its inputs when the caller has read them already. What they say is what their journals say; with
    ``reads_rows`` every row that is in the projection is read in its input, too, and held against the recorded checksum.
    """
    try:
        receipt = read_receipt(merged.receipt)
    except CorruptArtifactError as error:
        return ProjectionCheck(ProjectionState.DAMAGED, str(error))
    if receipt is None:
        return ProjectionCheck(ProjectionState.ABSENT, f"there is no receipt {merged.receipt.name}.")
    return (
        _check_files(merged, receipt)
        or _check_inputs(merged, receipt, shards, reads_rows=reads_rows)
        or ProjectionCheck(ProjectionState.VERIFIED, _said(receipt), receipt)
    )


def _said(receipt: Receipt) -> str:
    return f"{counted(receipt.output.rows, 'row')} of {counted(len(receipt.inputs), 'input')}."


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


def _check_inputs(
    merged: RunArtifacts, receipt: Receipt, shards: Sequence[ShardView] | None, *, reads_rows: bool
) -> ProjectionCheck | None:
    base = merged.rollouts.absolute().parent
    try:
        views = shards or _read_again([RunArtifacts(base / path) for path in dict.fromkeys(i.path for i in receipt.inputs)])
    except (GymEvalError, OSError) as error:
        return ProjectionCheck(ProjectionState.STALE, f"an input cannot be read: {error}", receipt)
    if tuple(input_record(view, merged) for view in views) != receipt.inputs:
        return ProjectionCheck(ProjectionState.STALE, "the inputs went on since it was made.", receipt)
    return _check_rows(views, receipt) if reads_rows else None


def _check_rows(views: Sequence[ShardView], receipt: Receipt) -> ProjectionCheck | None:
    try:
        for _ in read_rows(views):
            pass
    except CorruptArtifactError as error:
        return ProjectionCheck(ProjectionState.INPUT_DAMAGED, f"an input was changed: {error}", receipt)
    except (GymEvalError, OSError) as error:
        return ProjectionCheck(ProjectionState.STALE, f"an input cannot be read: {error}", receipt)
    return None


def _read_again(inputs: Sequence[RunArtifacts]) -> list[ShardView]:
    """The inputs as they stand now: shards of a run, or files without a manifest."""
    retry = RetrySettings()
    if all(artifacts.manifest.exists() for artifacts in inputs):
        return [read_shard(artifacts, retry) for artifacts in inputs]
    return [shard for agent in read_legacy(inputs, retry).agents for shard in agent.shards]

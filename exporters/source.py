"""What is exported: a verified projection with its coverage and metrics, or the rows of a single run, each rollout once."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson
from pydantic import ValidationError

from collector import jsonl
from collector.artifacts import RunArtifacts
from collector.errors import CorruptArtifactError, GymEvalError
from collector.settings import RetrySettings
from collector.state.recorded_retry import recorded_retry
from collector.text.counted import agreeing, counted
from merge.publication.receipt import file_sha256, read_receipt

if TYPE_CHECKING:
    from collector.state.coverage import Coverage


class ExportError(GymEvalError):
    """A run that cannot be exported as it was asked; each entry of ``details`` is one reason."""

    def __init__(self, what: str, fix: str = "", where: str | Path = "", details: tuple[str, ...] = ()) -> None:
        super().__init__(what, fix, where)
        self.args = (what, fix, where, details)
        self.details = details


SourceState: TypeAlias = dict[str, tuple[int, int, int, int] | None]


def state_of(artifacts: RunArtifacts) -> SourceState:
    """Device, inode, size in bytes and time of change in ns of each file that an export reads; None where there is none."""
    paths = (
        artifacts.rollouts, artifacts.manifest, artifacts.journal, artifacts.receipt,
        artifacts.coverage, artifacts.aggregate, artifacts.config,
    )  # fmt: skip
    return {path.name: _state(path) for path in paths}


def _state(path: Path) -> tuple[int, int, int, int] | None:
    try:
        info = path.stat()
    except FileNotFoundError:
        return None
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns


def check_source(artifacts: RunArtifacts, *, allow_partial: bool) -> None:
    """Raise ExportError for a projection that is not the published one, and for a partial run unless it is allowed.

    Raises FileNotFoundError when there are no rows. Files of a NeMo Gym run, which has no coverage, are taken as they are.
    """
    if not stat.S_ISREG(artifacts.rollouts.stat().st_mode):
        # They are read more than once, which a pipe is not.
        raise ExportError("is not a regular file.", "Name the file of the rollouts.", artifacts.rollouts)
    receipt = read_receipt(artifacts.receipt)
    if receipt is not None:
        _check_digests(
            {
                artifacts.rollouts: receipt.output.sha256,
                artifacts.coverage: receipt.coverage_sha256,
                artifacts.aggregate: receipt.aggregate_sha256,
            }
        )
    coverage = read_coverage(artifacts)
    if coverage is not None and is_partial(coverage) and not allow_partial:
        what, fix = _told_partial(coverage)
        raise ExportError(what, f"{fix}, or say +allow_partial=true (allow_partial: true in a YAML).", artifacts.rollouts)


def _told_partial(coverage: Coverage) -> tuple[str, str]:
    """Why the run is partial, and what to do about it."""
    completed, unfinished = coverage.completed, f"{coverage.unfinished:,} {agreeing(coverage.unfinished, 'are')} unfinished."
    if coverage.coverage_known:
        told = f"{counted(completed, 'rollout', of=coverage.expected)} {agreeing(completed, 'are')} completed"
        what = f"the run is partial: {told}, {unfinished}"
        return what, "Finish it"
    what = "there was no inventory to tell how many rollouts were expected"
    told = f"{completed:,} {agreeing(completed, 'are')} completed"
    return f"{what}: {told}, {unfinished}", "Aggregate the rows with their inventory beside them"


def _check_digests(wanted: dict[Path, str]) -> None:
    for path, digest in wanted.items():
        if file_sha256(path) != digest:
            raise ExportError("is not the file that was published.", "Merge again, then export.", path)


def is_partial(coverage: Coverage) -> bool:
    """Whether something that belongs to the run may still come, or nobody knows."""
    return coverage.partial or coverage.unfinished > 0 or not coverage.coverage_known


def read_coverage(artifacts: RunArtifacts) -> Coverage | None:
    """The coverage of a projection from its file, of a single run from its journal; None when the run keeps none.

    Raises CorruptArtifactError.
    """
    if artifacts.manifest.exists() and artifacts.journal.exists():
        from merge.inputs.shards import read_shard  # noqa: PLC0415 - brings numpy

        # The file is written when a session ends; the journal is what holds now.
        return read_shard(artifacts, recorded_retry([artifacts])).coverage
    try:
        data = artifacts.coverage.read_bytes()
    except FileNotFoundError:
        return None
    return parse_coverage(data, artifacts.coverage)


def parse_coverage(data: bytes, path: Path) -> Coverage:
    """The coverage in ``data``; figures that are derived from the counts are computed again. Raises CorruptArtifactError."""
    from collector.state.coverage import Coverage  # noqa: PLC0415 - brings the history of rollouts

    try:
        value: Any = jsonl.loads(data)
    except ValueError as error:
        raise CorruptArtifactError(path, 0, f"not a coverage file ({' '.join(str(error).split())[:200]}).") from error
    if not isinstance(value, dict):
        raise CorruptArtifactError(path, 0, "not a coverage file (not an object).")
    fields = {key: item for key, item in value.items() if key in Coverage.model_fields}
    states = fields.get("states")
    if fields.get("coverage_known") is False and fields.get("expected") is None and isinstance(states, dict):
        # Each rollout that is known is in one state.
        fields["expected"] = sum(count for count in states.values() if isinstance(count, int))
    try:
        return Coverage.model_validate(fields)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'counts'}: {e['msg']}" for e in error.errors())
        raise CorruptArtifactError(path, 0, f"not a coverage file ({problems[:200]}).") from error


def selected_lines(artifacts: RunArtifacts) -> Iterator[bytes]:
    """Each row to export, newline included: those of the selected attempts of a single run, all of any other file.

    Memory does not grow with the rows. Raises CorruptArtifactError for a row that is not the recorded one, OSError.
    """
    if not (artifacts.manifest.exists() and artifacts.journal.exists()):
        with artifacts.rollouts.open("rb", buffering=1 << 20) as file:
            yield from file
        return
    # numpy comes with these, and whoever only looks at an exporter or a ledger does without it.
    from merge.inputs.shards import read_shard  # noqa: PLC0415
    from merge.rows.blocks import read_rows  # noqa: PLC0415

    for block in read_rows([read_shard(artifacts, RetrySettings())]):
        yield from map(bytes, block.lines)


@dataclass(frozen=True)
class RunFigures:
    """What a tracker shows of a run. ``entries`` are those of the aggregate file."""

    coverage: Coverage
    entries: list[dict[str, Any]]

    @cached_property
    def partial(self) -> bool:
        return is_partial(self.coverage)


def read_figures(artifacts: RunArtifacts) -> RunFigures:
    """Coverage and metrics. Raises ExportError without coverage: a score never leaves without it; CorruptArtifactError."""
    coverage = read_coverage(artifacts)
    if coverage is None:
        raise ExportError(
            "there is no coverage, and a score is never sent without it.", "Merge the run first.", artifacts.coverage
        )
    try:
        entries = orjson.loads(artifacts.aggregate.read_bytes())
    except FileNotFoundError as error:
        raise ExportError("there are no metrics.", "Merge the run first.", artifacts.aggregate) from error
    except ValueError as error:
        raise CorruptArtifactError(artifacts.aggregate, 0, f"not JSON ({error}).") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise CorruptArtifactError(artifacts.aggregate, 0, "not an array of objects.")
    return RunFigures(coverage, entries)

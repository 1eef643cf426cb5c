"""The exporter ``inspect``: one ``.eval`` log that ``inspect view`` and ``inspect_ai.log.read_eval_log`` open."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from tempfile import SpooledTemporaryFile
from typing import IO, Any, ClassVar, Final

from collector import jsonl
from collector.artifacts import RunArtifacts
from exporters.atif.lossy import readable_text
from exporters.base import RunExportConfig
from exporters.facts import RunFacts, read_run_facts
from exporters.flatten import coverage_figures
from exporters.inspect.samples import SCORER, is_measured, sample_of, summary_of
from exporters.single_file import FileExportConfig, FileExporter, Sink
from exporters.source import ExportError, is_partial, read_coverage, selected_lines
from exporters.strict_rows import Place, RowError, parse_row, place_of
from exporters.trackers.package import read_config
from merge.metrics.figures import mean_of

#: The format of inspect_ai's logs that is written.
VERSION: Final = 2
#: A zip's clock begins here; a real time would make equal logs differ.
_ZIP_TIME: Final = (1980, 1, 1, 0, 0, 0)
#: Bytes of summaries from which on they wait on disk.
_IN_MEMORY: Final = 8 << 20


@dataclass(slots=True)
class _Tally:
    """What is said of all samples. ``summaries`` is their JSON array without its end."""

    summaries: IO[bytes]
    count: int = 0
    rewards: list[float] = field(default_factory=list[float])
    epochs: int = 1
    tasks: set[int] = field(default_factory=set[int])
    model: str = "unknown"
    created: float = 0.0

    def see(self, row: Mapping[str, Any], sample: Mapping[str, Any]) -> None:
        """Count one sample."""
        if is_measured(row):
            self.rewards.append(float(row["reward"]))
        self.epochs = max(self.epochs, sample["epoch"])
        self.tasks.add(sample["id"])
        if not self.count:
            self.model = sample["output"]["model"]
            self.created = _created(row)
        self.summaries.write((b"," if self.count else b"[") + jsonl.dumps(summary_of(sample)))
        self.count += 1


class InspectExporter(FileExporter[FileExportConfig]):
    """Scores and counts are ours: the mean of the measured rewards, over the samples that were measured."""

    Config: ClassVar[type[RunExportConfig]] = FileExportConfig
    tag = "_inspect.eval"

    def write(self, artifacts: RunArtifacts, sink: Sink) -> int:
        """Write the log; its header last. Memory: about a thousand bytes a rollout, for the zip's directory."""
        seen: set[Place] = set()
        with (
            SpooledTemporaryFile(_IN_MEMORY) as summaries,
            zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive,  # pyright: ignore[reportArgumentType, reportCallIssue] - it only needs write and tell
        ):
            tally = _Tally(summaries)
            for number, line in enumerate(selected_lines(artifacts), start=1):
                try:
                    sample, data = _sample(line, tally, seen)
                except ValueError as error:
                    raise ExportError(f"line {number}: {error}.", "Nothing was published.", artifacts.rollouts) from error
                _write(archive, f"samples/{sample['id']}_epoch_{sample['epoch']}.json", data)
            header = _header(artifacts, tally)
            start = {key: header[key] for key in ("version", "eval", "plan")}
            _write(archive, "_journal/start.json", jsonl.dumps(start))
            summaries.write(b"]" if tally.count else b"[]")
            _copy(archive, "summaries.json", summaries)
            _write(archive, "header.json", jsonl.dumps(header))
        return tally.count


def _sample(line: bytes, tally: _Tally, seen: set[Place]) -> tuple[dict[str, Any], bytes]:
    row, _ = readable_text(parse_row(line))
    place = place_of(row)
    if place in seen:
        raise RowError(f"rollout {place} occurs a second time")
    seen.add(place)
    sample = sample_of(row)
    # A sample is deeper than its row: what is at the limit cannot be written.
    data = jsonl.dumps(sample)
    tally.see(row, sample)
    return sample, data


def _write(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(_entry(name), data)


def _copy(archive: zipfile.ZipFile, name: str, source: IO[bytes]) -> None:
    entry = _entry(name)
    # Told before, it decides how the entry's size is written.
    entry.file_size = source.tell()
    source.seek(0)
    with archive.open(entry, "w") as target:
        shutil.copyfileobj(source, target)


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _ZIP_TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def _header(artifacts: RunArtifacts, tally: _Tally) -> dict[str, Any]:
    facts = read_run_facts(artifacts)
    created = datetime.fromtimestamp(tally.created, UTC).isoformat()
    count = tally.count
    coverage = read_coverage(artifacts)
    figures = {} if coverage is None else {k: v for k, v in coverage_figures(coverage).items() if v is not None}
    return {
        "version": VERSION,
        "status": "success" if coverage is None or not is_partial(coverage) else "cancelled",
        "eval": _spec(artifacts, tally, facts, created),
        "plan": {"name": "plan", "steps": [], "config": {}},
        "results": {
            "total_samples": coverage.expected if coverage else count,
            "completed_samples": count,
            "scores": [_score(tally)] if tally.rewards else [],
            "metadata": {"coverage": figures},
        },
        "stats": {"started_at": created, "completed_at": created, "model_usage": {}},
    }


def _spec(artifacts: RunArtifacts, tally: _Tally, facts: RunFacts, created: str) -> dict[str, Any]:
    name = facts.benchmark or artifacts.rollouts.stem
    run = facts.run_id or "run"
    return {
        "eval_id": run,
        "run_id": run,
        "created": created,
        "task": name,
        "task_id": f"{run}-{name}",
        "dataset": {"name": name, "samples": len(tally.tasks), "sample_ids": sorted(tally.tasks)},
        "model": tally.model,
        "config": {"epochs": tally.epochs},
        "task_args": read_config(artifacts),
        "metadata": {"gym_eval_run_id": facts.run_id},
    }


def _score(tally: _Tally) -> dict[str, Any]:
    measured = len(tally.rewards)
    mean = mean_of(tally.rewards)
    return {
        "name": SCORER,
        "scorer": SCORER,
        "scored_samples": measured,
        "unscored_samples": tally.count - measured,
        "metrics": {"mean": {"name": "mean", "value": mean}},
    }


def _created(row: Mapping[str, Any]) -> float:
    response = row.get("response")
    value = response.get("created_at") if isinstance(response, Mapping) else None
    is_time = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1 << 33
    return float(value) if is_time and value is not None else 0.0

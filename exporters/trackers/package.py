"""What every tracker is sent of one run, ready to be named and chunked: figures, files, identity and the digest of it all."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from collector import jsonl
from collector.artifacts import RunArtifacts
from collector.errors import GymEvalError
from collector.text.counted import counted
from exporters.facts import read_run_facts
from exporters.flatten import Flat, flatten_run
from exporters.source import ExportError, read_figures
from exporters.trackers.names import rename, stable_id
from exporters.trackers.settings import TrackerConfig
from merge.publication.receipt import file_sha256


@dataclass(frozen=True, slots=True)
class Package:
    """One run as it leaves. ``digest`` changes when anything that is sent changes."""

    id: str
    run_id: str
    benchmark: str
    flat: Flat
    #: Each file with its SHA-256 in hex.
    files: dict[Path, str]
    digest: str
    partial: bool

    @property
    def contents(self) -> str:
        """``12 metrics, 1 param, 4 files``."""
        parts = {"metric": self.flat.metrics, "param": self.flat.params, "file": self.files}
        return ", ".join(counted(len(found), noun) for noun, found in parts.items())

    def version(self, number: int) -> str:
        """The identity of a later version of the same run."""
        return stable_id(self.run_id, self.benchmark, number)


def read_package(artifacts: RunArtifacts, *, with_rollouts: bool, report: Path | None = None) -> Package:
    """Everything to send, ``report`` too.

    Raises ExportError for a run without coverage, metrics or an id and for a missing report, CorruptArtifactError, OSError.
    """
    facts = read_run_facts(artifacts)
    if facts.run_id is None or facts.benchmark is None:
        raise ExportError("the run has no id: it was not made or merged here.", "Merge it first.", artifacts.rollouts)
    figures = read_figures(artifacts)
    flat = flatten_run(figures, read_config(artifacts))
    candidates = [artifacts.config, artifacts.aggregate, artifacts.coverage, artifacts.receipt]
    candidates += [artifacts.rollouts] if with_rollouts else []
    if report is not None:
        if not report.is_file():
            raise ExportError("there is no such report.", "Make it first: gym eval report RUN -o FILE.", report)
        candidates.append(report)
    files = {path.absolute(): file_sha256(path) for path in candidates if path.exists()}
    return Package(
        id=stable_id(facts.run_id, facts.benchmark),
        run_id=facts.run_id,
        benchmark=facts.benchmark,
        flat=flat,
        files=files,
        digest=_digest(flat, files),
        partial=figures.partial,
    )


def same_as_sent(config: TrackerConfig, evidence: str | None) -> bool:
    """Whether the run would be sent as it was when its digest was ``evidence``."""
    artifacts = RunArtifacts(config.rollouts_jsonl_fpath)
    try:
        return read_package(artifacts, with_rollouts=config.upload_rollouts, report=config.report_fpath).digest == evidence
    except (GymEvalError, OSError):
        return False


def read_config(artifacts: RunArtifacts) -> dict[str, Any]:
    """The masked settings beside the rollouts; none when they were not kept."""
    try:
        value = yaml.safe_load(artifacts.config.read_bytes())
    except FileNotFoundError:
        return {}
    except yaml.YAMLError as error:
        raise ExportError(f"not YAML ({' '.join(str(error).split())[:100]}).", where=artifacts.config) from error
    return value if isinstance(value, dict) else {}


def _digest(flat: Flat, files: Mapping[Path, str]) -> str:
    parts = {
        "params": flat.params,
        "metrics": flat.metrics,
        "texts": flat.texts,
        "files": {path.name: digest for path, digest in files.items()},
    }
    return hashlib.sha256(jsonl.canonical(parts)).hexdigest()


@dataclass(frozen=True, slots=True)
class Named:
    """A package's figures under a backend's names. ``originals``: each name that was changed, to what it was."""

    params: dict[str, str]
    metrics: dict[str, float]
    texts: dict[str, str]
    originals: dict[str, str]


def named(flat: Flat, rule: Callable[[str], str], *, longest: int, has_folders: bool = False) -> Named:
    """``flat`` under the names that ``rule`` gives, collisions told apart."""
    params = rename(flat.params, rule, longest=longest, has_folders=has_folders)
    figures = rename([*flat.metrics, *flat.texts], rule, longest=longest, has_folders=has_folders)
    changed = {made: name for renamed in (params, figures) for name, made in renamed.items() if made != name}
    return Named(
        params={params[name]: value for name, value in flat.params.items()},
        metrics={figures[name]: value for name, value in flat.metrics.items()},
        texts={figures[name]: value for name, value in flat.texts.items()},
        originals=changed,
    )


def omitted_lines(flat: Flat) -> tuple[str, ...]:
    """What was not sent, for people; the first twenty by name."""
    lines = [f"not sent: {name}: {why}" for name, why in flat.omitted.items()]
    return (*lines[:20], *([f"and {len(lines) - 20} more"] if len(lines) > 20 else []))

"""In which settings two runs differ, by what their manifests say of the experiment. Connections and pace are no part of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collector import jsonl
from collector.artifacts import RunArtifacts
from collector.errors import GymEvalError
from collector.formats.differences import flatten
from collector.formats.manifest import read_manifest
from merge.publication.receipt import read_receipt

#: Characters of a value that a table shows.
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Change:
    """One setting; None where a run does not have it."""

    key: str
    base: Any
    candidate: Any

    @property
    def text(self) -> str:
        """``responses_create_params.temperature: 0.0, now 0.7``."""
        return f"{self.key}: {_short(self.base)}, now {_short(self.candidate)}"


def settings_beside(rollouts: RunArtifacts) -> dict[str, Any] | None:
    """The experiment of the run at ``rollouts``, or of the first shard it was merged from; None when no file tells."""
    try:
        manifest = read_manifest(rollouts.manifest)
        receipt = read_receipt(rollouts.receipt) if manifest is None else None
        if receipt is not None and receipt.inputs:
            # Joining leaves an absolute path as it is.
            manifest = read_manifest(RunArtifacts(rollouts.rollouts.parent / Path(receipt.inputs[0].path)).manifest)
    except (GymEvalError, OSError):
        # A comparison is about scores; what explains them may be missing.
        return None
    return None if manifest is None else flatten(manifest.config)


def changes_between(base: Mapping[str, Any] | None, candidate: Mapping[str, Any] | None) -> tuple[Change, ...] | None:
    """Every setting that differs, by key; None when one side's are not known."""
    if base is None or candidate is None:
        return None
    keys = sorted({*base, *candidate})
    return tuple(Change(key, base.get(key), candidate.get(key)) for key in keys if base.get(key) != candidate.get(key))


def _short(value: Any) -> str:
    text = "nothing" if value is None else jsonl.dumps(value).decode(errors="replace")
    if len(text) <= _SHOWN:
        return text
    # The end of a text, a list or a mapping stays: the table puts other words behind it.
    return f"{text[: _SHOWN - 4]}...{text[-1]}"

"""Every file of a run, derived from the path of its rollouts: the stem rule, in one place.

``<stem>`` is the main file's name without its last suffix; a companion is ``<stem><tag>``. The names are those of NeMo Gym
where it has the file; ``_coverage``, ``_merge``, ``_exports`` and the lock are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: What a resume reads beside the rollouts.
_RECOVERY: Final = ("_manifest.json", "_attempts.jsonl", "_materialized_inputs.jsonl", "_failures.jsonl")


@dataclass(frozen=True, slots=True)
class RunArtifacts:
    """The files that belong to one rollouts path. Nothing here touches the disk except ``recovery_companions_present``."""

    rollouts: Path

    def companion(self, tag: str) -> Path:
        """The file beside the rollouts whose name is the stem followed by ``tag``."""
        return self.rollouts.with_name(self.rollouts.stem + tag)

    @property
    def manifest(self) -> Path:
        return self.companion("_manifest.json")

    @property
    def journal(self) -> Path:
        return self.companion("_attempts.jsonl")

    @property
    def inventory(self) -> Path:
        return self.companion("_materialized_inputs.jsonl")

    @property
    def failures(self) -> Path:
        return self.companion("_failures.jsonl")

    @property
    def moved(self) -> Path:
        return self.companion("_moved.jsonl")

    @property
    def coverage(self) -> Path:
        return self.companion("_coverage.json")

    @property
    def config(self) -> Path:
        return self.companion("_config.yaml")

    @property
    def aggregate(self) -> Path:
        return self.companion("_aggregate_metrics.json")

    @property
    def receipt(self) -> Path:
        return self.companion("_merge.json")

    @property
    def exports(self) -> Path:
        return self.companion("_exports.jsonl")

    @property
    def health(self) -> Path:
        return self.companion("_health.json")

    @property
    def verdicts(self) -> Path:
        return self.companion("_verdicts.jsonl")

    @property
    def lock(self) -> Path:
        return self.rollouts.with_name(self.rollouts.name + ".lock")

    @property
    def merge_lock(self) -> Path:
        return self.companion("_merge.lock")

    @property
    def recovery_companions(self) -> tuple[Path, ...]:
        """The files a resume reads; a merge target must have none of them."""
        return tuple(map(self.companion, _RECOVERY))

    @property
    def names_read(self) -> tuple[str, ...]:
        """Every file that tells what is recorded here, as text: rollouts, recovery companions, and the moves, which may lack.

        For whoever looks at thousands of runs: making six paths takes longer than asking the system after six files.
        """
        rollouts = str(self.rollouts)
        stem = rollouts.removesuffix(self.rollouts.suffix)
        return (rollouts, *[stem + tag for tag in _RECOVERY], f"{stem}_moved.jsonl")

    def recovery_companions_present(self) -> tuple[Path, ...]:
        """Those that exist in any form: a file, a directory, or a dangling link."""
        return tuple(path for path in self.recovery_companions if path.exists() or path.is_symlink())

"""Under which settings of retries a run was collected: whether a rollout is finished is a question of those."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from collector.artifacts import RunArtifacts
from collector.errors import CorruptArtifactError
from collector.settings import RetrySettings

#: Those that say what may be dispatched again; the others are about requests.
COUNTED: Final = ("max_attempts", "max_interruptions", "retry_terminal_timeouts", "retry_invalid_judge_responses")


def recorded_retry(runs: Sequence[RunArtifacts]) -> RetrySettings:
    """The settings that the newest session of ``runs`` had, as the file of settings beside its rows says.

    The defaults where there is no such file. Raises CorruptArtifactError for one that says nothing of the kind.
    """
    newest: tuple[int, Path] | None = None
    for run in runs:
        # Files of other programs have no session; a file of this name beside them is theirs.
        if run.manifest.exists() and run.config.exists():
            written = (run.config.stat().st_mtime_ns, run.config)
            newest = written if newest is None else max(newest, written)
    return RetrySettings() if newest is None else _read(newest[1])


def _read(path: Path) -> RetrySettings:
    # Files of other programs have none.
    import yaml  # noqa: PLC0415

    try:
        value: Any = yaml.safe_load(path.read_bytes())
        saved = value["retry"]
        return RetrySettings.model_validate({name: saved[name] for name in COUNTED if name in saved})
    except (yaml.YAMLError, ValidationError, ValueError, TypeError, KeyError) as error:
        what = f"no settings of retries ({' '.join(str(error).split())[:100]})."
        raise CorruptArtifactError(path, 0, what, "Restore the file, or remove it: the defaults hold then.") from error

"""Whether a file that somebody names holds rollouts: a dataset has rows of the same form, and no results."""

from __future__ import annotations

from typing import Final

from collector import jsonl
from collector.artifacts import RunArtifacts
from collector.errors import RequestError
from collector.formats import rows

#: One of them is in every row that somebody's run wrote.
_RESULTS: Final = frozenset({"response", "reward", rows.ROLLOUT_INDEX})


def check_rollouts(artifacts: RunArtifacts) -> None:
    """Raise RequestError for a file that is no run's of ours and whose first row is no rollout.

    A row that cannot be read is left to the command that reads all of them.
    """
    if artifacts.manifest.exists() or artifacts.receipt.exists():
        return
    try:
        with artifacts.rollouts.open("rb") as file:
            row = jsonl.loads(file.readline())
    except (OSError, ValueError):
        return
    if isinstance(row, dict) and not _RESULTS & row.keys():
        what = "its rows are no rollouts: the first has neither a response nor a reward."
        raise RequestError(what, "Name what gym eval run or a merge wrote.", artifacts.rollouts)

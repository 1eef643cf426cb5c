"""Why jobs ended before their work was done: the error each of them wrote last, said once."""

from __future__ import annotations

from pathlib import Path
from typing import Final

#: How a job begins the line that it ends with.
_ERROR: Final = "gym eval: "
#: Bytes at a log's end in which that line is looked for.
_TAIL: Final = 16_384
#: Different reasons that are shown; more are counted.
_MOST: Final = 3


def last_words(logs: Path) -> list[str]:
    """The last error of each job log in ``logs``, newest first, equal ones once; at most three, then how many more."""
    files = sorted(logs.glob("job-*.log"), key=lambda path: path.stat().st_mtime, reverse=True)
    said = list(dict.fromkeys(word for path in files if (word := _error_in(path)) is not None))
    more = [f"and {len(said) - _MOST} other reasons"] if len(said) > _MOST else []
    return said[:_MOST] + more


def _error_in(path: Path) -> str | None:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        lines = file.read().decode("utf-8", errors="replace").splitlines()
    # A job that ended well afterwards, after a requeue say, has nothing to explain.
    last = next((line for line in reversed(lines) if line.strip()), "")
    return last.removeprefix(_ERROR) if last.startswith(_ERROR) else None

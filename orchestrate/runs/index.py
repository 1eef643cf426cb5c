"""Which runs this user submitted from here, so that one can be named without its path. Losing it loses nothing."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from collector import durable
from collector.errors import GymEvalError, NotFoundError
from collector.text.counted import counted
from orchestrate.runs.directory import RunDir
from orchestrate.runs.submissions import is_refused, read_submissions


class IndexEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line: a run was submitted, for the first time or again."""

    at: str
    name: str
    run_dir: str


def index_path() -> Path:
    """The index file under the user's state directory."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "gym-eval" / "runs.jsonl"


def remember(run: RunDir, *, at: str) -> None:
    """Add ``run`` to the index; a home directory that cannot be written does not matter."""
    path = index_path()
    with suppress(OSError):
        durable.make_dir(path.parent)
        file = durable.AppendFile(path)
        try:
            file.append(msgspec.json.encode(IndexEntry(at=at, name=run.root.name, run_dir=str(run.root))) + b"\n")
        finally:
            file.close()


def find_run(text: str | None) -> RunDir:
    """The run that ``text`` names: a path, a name, or the unique beginning of one; None is the one that had jobs last.

    Raises NotFoundError with what there is instead.
    """
    if text and (Path(text) / "plan.json").exists():
        return RunDir(Path(text).absolute())
    if text is None:
        return last_run()[0]
    known = _known()
    exact = [path for path, name in known.items() if name == text]
    # Every name begins with nothing, which an unset variable of a shell is.
    found = exact or [path for path, name in known.items() if text and name.startswith(text)]
    if len(found) == 1:
        return RunDir(found[0])
    if found:
        raise NotFoundError(f"{counted(len(found), 'run')} fit: {', '.join(map(str, found[-5:]))}.", "Name one of them.", text)
    names = ", ".join(list(dict.fromkeys(known.values()))[-5:])
    raise NotFoundError("no such run.", f"The last ones are: {names}." if names else "Name a run directory.", text)


def last_run() -> tuple[RunDir, RunDir | None]:
    """The run that was submitted last, and the newer one that the scheduler refused as a whole; None when there is none.

    Where all of them were refused, the last one stands for itself. Raises NotFoundError when there is no run.
    """
    known = [RunDir(path) for path in _known()]
    if not known:
        raise NotFoundError("no run was submitted from here.", "Name a run directory.", index_path())
    last = known[-1]
    found = next((run for run in reversed(known) if not _is_refused(run)), last)
    return found, None if found is last else last


def _is_refused(run: RunDir) -> bool:
    # What is wrong with its receipts is told by the command that reads them.
    with suppress(GymEvalError, OSError):
        return is_refused(read_submissions(run.submissions))
    return False


def _known() -> dict[Path, str]:
    return {Path(entry.run_dir): entry.name for entry in entries() if (Path(entry.run_dir) / "plan.json").exists()}


def entries() -> list[IndexEntry]:
    """Oldest first; a run that was submitted again stands where it was submitted last."""
    entries: dict[str, IndexEntry] = {}
    with suppress(OSError):
        for line in index_path().read_bytes().split(b"\n"):
            with suppress(msgspec.DecodeError):
                entry = msgspec.json.decode(line, type=IndexEntry)
                entries.pop(entry.run_dir, None)
                entries[entry.run_dir] = entry
    return list(entries.values())

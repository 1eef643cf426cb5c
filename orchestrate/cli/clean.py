"""``gym eval clean``: remove what finished jobs left, never a result unless ``--all`` says so."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Final

from collector.text.counted import counted
from orchestrate.cli.parser import CommandParser
from orchestrate.run_words import WHOLE_WORDS

if TYPE_CHECKING:
    from orchestrate.operate.clean import Removal
    from orchestrate.runs.directory import RunDir

_DEFAULT_AGE: Final = "7d"


def main(argv: list[str]) -> int:
    """Return 0. A named run that may not be cleaned is refused; among all runs it is passed over and told."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.all and args.run is None:
        parser.error("--all removes results: name the run")
    if args.run is not None:
        from orchestrate.remote.forward import forwarded

        if (code := forwarded("clean", args.run, argv)) is not None:
            return code
    removals = _planned(args.run, args.older_than, everything=args.all)
    if not args.dry_run:
        removals = _removed(removals, is_named=args.run is not None)
    is_done = not args.dry_run
    untouched_for = args.older_than or (_DEFAULT_AGE if args.run is None else None)
    print(_as_json(removals, is_done=is_done) if args.json else _as_text(removals, is_done=is_done, age=untouched_for))
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="gym eval clean",
        description="Remove task pickles, slot locks, logs and leftovers of crashes of runs whose jobs have ended. "
        "Example: gym eval clean --older-than 7d --dry-run",
        epilog="Rollouts, failures, journals, receipts and metrics stay unless --all is given.",
    )
    parser.add_argument("run", nargs="?", metavar="RUN", help=f"{WHOLE_WORDS}; default: every run submitted from here")
    parser.add_argument(
        "--older-than", metavar="AGE", help=f"only runs untouched for so long; {_DEFAULT_AGE} unless RUN is named"
    )
    parser.add_argument("--all", action="store_true", help="remove the whole run directory, results included")
    parser.add_argument("--dry-run", action="store_true", help="show what would be removed; remove nothing")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _planned(name: str | None, older_than: str | None, *, everything: bool) -> list[Removal]:
    from collector.errors import GymEvalError
    from orchestrate.named import whole_run
    from orchestrate.operate.clean import last_activity, plan_removal
    from orchestrate.operate.durations import parse_duration_s

    if name is not None:
        run = whole_run(name)
        age_s = parse_duration_s(older_than, flag="--older-than") if older_than is not None else 0.0
        return [plan_removal(run, everything=everything)] if _idle_s(last_activity(run)) >= age_s else []
    age_s = parse_duration_s(older_than or _DEFAULT_AGE, flag="--older-than")
    found: list[Removal] = []
    for run in _known():
        try:
            if _idle_s(last_activity(run)) >= age_s:
                found.append(plan_removal(run))
        except GymEvalError as error:
            _tell_left(error)
    return [removal for removal in found if removal.paths]


def _idle_s(last: float) -> float:
    # A file server's clock may be ahead of this machine's.
    return max(0.0, time.time() - last)


def _removed(removals: list[Removal], *, is_named: bool) -> list[Removal]:
    """Those that could be removed; a run that was not named by itself is passed over and told."""
    from collector.errors import GymEvalError
    from orchestrate.operate.clean import remove

    done: list[Removal] = []
    for removal in removals:
        try:
            remove(removal)
        except GymEvalError as error:
            if is_named:
                raise
            _tell_left(error)
        else:
            done.append(removal)
    return done


def _tell_left(error: Exception) -> None:
    print(f"gym eval clean: left alone: {error}", file=sys.stderr)


def _known() -> list[RunDir]:
    from pathlib import Path

    from orchestrate.runs.directory import RunDir
    from orchestrate.runs.index import entries

    return [RunDir(Path(entry.run_dir)) for entry in entries() if (Path(entry.run_dir) / "plan.json").exists()]


def _size_text(size_bytes: int) -> str:
    """In MB, and in kB what would be none of them."""
    return f"{size_bytes / 1e6:,.1f} MB" if size_bytes >= 1e5 else f"{-(-size_bytes // 1000)} kB"


def _as_text(removals: list[Removal], *, is_done: bool, age: str | None) -> str:
    if not any(removal.paths for removal in removals):
        return "Nothing to remove." if age is None else f"Nothing to remove of runs untouched for {age} (--older-than)."
    verb = "removed" if is_done else "would remove"
    lines: list[str] = []
    for removal in removals:
        what = "the whole run" if removal.is_everything else counted(len(removal.paths), "file")
        lines.append(f"{removal.run.root}: {verb} {what}, {_size_text(removal.size_bytes)}")
        if not is_done:
            lines += [f"  {path}" for path in removal.paths]
    return "\n".join(lines)


def _as_json(removals: list[Removal], *, is_done: bool) -> str:
    shown = [
        {
            "run_dir": str(removal.run.root),
            "removed": is_done,
            "size_bytes": removal.size_bytes,
            "paths": list(map(str, removal.paths)),
        }
        for removal in removals
    ]
    return json.dumps(shown, indent=2, ensure_ascii=False)

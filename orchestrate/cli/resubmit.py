"""``gym eval resubmit``: what a run left unfinished gets new shards and new jobs; finished rollouts stay as they are."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from collector.text.counted import counted
from orchestrate.cli.parser import CommandParser, count
from orchestrate.run_words import WHOLE_WORDS

if TYPE_CHECKING:
    from orchestrate.runs.plan import SubmitPlan
    from orchestrate.submission.resubmit import Resubmission


def main(argv: list[str]) -> int:
    """Plan anew and submit. Refusals and previews change nothing."""
    args = _parser().parse_args(argv)
    from orchestrate.remote.forward import forwarded

    if (code := forwarded("resubmit", args.run, argv)) is not None:
        return code
    from orchestrate.named import whole_run
    from orchestrate.runs.index import remember
    from orchestrate.submission.resubmit import Wanted, resubmit
    from orchestrate.submission.submit import check_complete
    from orchestrate.submission.submit_work import now

    run = whole_run(args.run, acts=True)
    wanted = Wanted(shards=args.shards, failed=args.failed, reset_attempts=args.reset_attempts)
    result = resubmit(run, wanted, dry_run=args.dry_run)
    if (note := _edited(result.plan)) is not None:
        print(f"gym eval resubmit: note: {note}", file=sys.stderr)
    print(_as_json(result) if args.json else _as_text(result))
    if result.submittal is not None:
        remember(run, at=now())
        # Resubmitted once more, the same would move again.
        check_complete(result.submittal, again=f"run gym eval submit {result.plan.config_file}")
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="gym eval resubmit",
        description="Run again what a run left unfinished. Example: gym eval resubmit math "
        "--failed transport_timeout --shards 4",
        epilog="Attempts are counted anew in the new shards.",
    )
    parser.add_argument("run", nargs="?", metavar="RUN", help=f"{WHOLE_WORDS}; default: the last one")
    parser.add_argument("--shards", type=count, help="new shards of each benchmark; default: as many as it had at first")
    parser.add_argument("--failed", metavar="KIND", help="only rollouts whose latest failure is of this kind or class")
    parser.add_argument(
        "--reset-attempts", action="store_true", help="also rollouts that failed for good or used up their attempts"
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be run again; change nothing")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _edited(plan: SubmitPlan) -> str | None:
    """What to know when the YAML file is no longer the one that was submitted; None when it is, or is gone."""
    from pathlib import Path

    from orchestrate.runs.plan import file_digest

    found = file_digest(Path(plan.config_file))
    if "" in (found, plan.config_file_digest) or found == plan.config_file_digest:
        return None
    return (
        f"{plan.config_file} was edited since it was submitted, and what the run recorded then is used; "
        "gym eval submit with that file takes it as it is now."
    )


def _as_json(result: Resubmission) -> str:
    jobs = result.submittal.jobs if result.submittal is not None else {}
    moved = {
        name: {"rollouts": number, "shards": result.shards[name], "jobs": jobs.get(name, [])}
        for name, number in result.rollouts.items()
    }
    shown = {"run_dir": str(result.run.root), "submitted": result.submittal is not None, "benchmarks": moved}
    return json.dumps({**shown, "nothing": result.nothing or None}, indent=2, ensure_ascii=False)


def _as_text(result: Resubmission) -> str:
    from orchestrate.cli.tables import terminal_width, wrapped

    verb = "would move" if result.submittal is None else "moved"
    lines = [f"run {result.run.root.name}  {result.run.root}"]
    lines += [wrapped(f"  nothing to run again: {result.nothing}", terminal_width(), indent="    ")] if result.nothing else []
    for name, number in result.rollouts.items():
        lines.append(f"  {name}: {verb} {counted(number, 'rollout')} to {counted(result.shards[name], 'new shard')}")
    return "\n".join(lines)

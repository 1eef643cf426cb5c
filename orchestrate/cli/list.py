"""``gym eval list``: the runs that were submitted from here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrate.cli.parser import CommandParser

if TYPE_CHECKING:
    from orchestrate.operate.listing import ListedRun

#: What a narrow terminal has less of: a run's name leads to it, and the first part of the name does, too.
_SPARE = (("where", 12), ("run", 16), ("submitted", 16), ("where", 5), ("run", 8))


def main(argv: list[str]) -> int:
    """Print the runs, oldest first, and return 0."""
    args = _parser().parse_args(argv)
    from orchestrate.operate.durations import parse_since
    from orchestrate.operate.listing import list_runs

    since = None if args.since is None else parse_since(args.since, flag="--since")
    found = list_runs(since=since)
    if args.json:
        import json

        print(json.dumps([run.model_dump() for run in found], indent=2, ensure_ascii=False))
    else:
        print(_as_text(found))
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="gym eval list",
        description="List the runs that were submitted from here. Example: gym eval list --since 7d",
        epilog="Asks no scheduler: gym eval status RUN does.",
    )
    parser.add_argument("--since", metavar="WHEN", help="only those since then: 12h, 7d or 2026-05-01")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _as_text(found: list[ListedRun]) -> str:
    from orchestrate.cli.tables import table, terminal_width

    if not found:
        return "No run was submitted from here."
    rows = [[run.name, run.submitted_at, _merged(run), _number(run.rollouts), run.place] for run in found]
    header = ["run", "submitted", "merged", "rollouts", "where"]
    return table(header, rows, width=terminal_width(), spare=_SPARE)


def _merged(run: ListedRun) -> str:
    if run.trouble is not None:
        return "broken"
    if run.refused:
        return "refused"
    return "-" if run.benchmarks is None else f"{run.merged}/{run.benchmarks}"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)

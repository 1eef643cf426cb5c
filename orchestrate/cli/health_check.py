"""``gym eval health-check``: whether saved rollouts are what they claim to be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from collector.text.counted import counted
from orchestrate.cli.parser import CommandParser, count
from orchestrate.run_words import RUN_WORDS

if TYPE_CHECKING:
    from collector.artifacts import RunArtifacts
    from merge.health.run import HealthReport


def main(argv: list[str]) -> int:
    """Check, publish the reports beside the rollouts, print them, and return 0 whatever was found."""
    args = _parser().parse_args(argv)
    from merge.health.checks import parse_ignored
    from merge.health.run import check_health
    from orchestrate.health import runs_in
    from orchestrate.named import named

    ignored = parse_ignored(args.ignore)
    runs = runs_in(named(args.path).path, args.rollouts_file)
    reports = [(run, check_health(run, ignored=ignored, workers=args.workers)) for run in runs]
    print(_as_json(reports) if args.json else "\n".join(_as_text(run, report) for run, report in reports))
    return 0


def _parser() -> CommandParser:
    from merge.health.checks import Check

    parser = CommandParser(
        prog="gym eval health-check",
        description="Check saved rollouts: unreadable or doubled rows, empty answers, failed calls, missing token counts. "
        "Example: gym eval health-check runs/math-1f2e3d4c/math",
        epilog=f"Checks: {', '.join(Check)}.",
    )
    parser.add_argument("path", metavar="RUN", help=f"{RUN_WORDS}, or a shard's directory")
    parser.add_argument("--rollouts-file", default="rollouts.jsonl", metavar="NAME", help="the file's name in that directory")
    parser.add_argument("--workers", type=count, metavar="N", help="processes; default: one a processor, eight at most")
    parser.add_argument("--ignore", "--ignore-checks", default="", metavar="A,B", help="checks to leave out")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON, by rollouts file")
    return parser


def _as_json(reports: list[tuple[RunArtifacts, HealthReport]]) -> str:
    import json

    return json.dumps({str(run.rollouts): report.summary for run, report in reports}, indent=2)


#: What the verdict means and what to do about it; the table below names the checks.
_UNOBSERVED: Final = (
    "unobserved: nothing found, and the row lacks what some checks look at (without evidence, below)",
    "--ignore, or health_check_ignored_checks of a run, leaves them out",
)


def _as_text(run: RunArtifacts, report: HealthReport) -> str:
    from orchestrate.cli.tables import table, terminal_width, wrapped

    counts = report.summary["run"]
    width = terminal_width()
    flagged = sum(bool(task["flags"]) for task in report.summary["tasks"].values())
    rows = [
        [f"  {check}", str(counts["issues"][check]), str(seen["evaluated"]), str(seen["unobserved"])]
        for check, seen in counts["artifacts"]["coverage"].items()
        if not seen["ignored"]
    ]
    return "\n".join(
        [
            str(run.rollouts),
            f"  {report.verdicts_line}",
            *(wrapped(f"  {line}", width, indent="    ") for line in _UNOBSERVED if counts["verdicts"]["unobserved"]),
            table(["  check", "findings", "evaluated", "without evidence"], rows),
            f"  {counted(len(report.summary['tasks']), 'task')}, {flagged} of them flagged",
            f"  {report.health}",
            f"  {report.verdicts}",
        ]
    )

"""``gym eval report``: one HTML file about a run."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from orchestrate.cli.parser import CommandParser
from orchestrate.run_words import RUN_WORDS


def main(argv: list[str]) -> int:
    """Write the page, print its path, and return 0 whatever the run looks like."""
    args = _parser().parse_args(argv)
    from collector import durable
    from collector.errors import RefusedError, kind_of
    from merge.publication.replaceable import check_replaceable
    from orchestrate.output_place import check_place
    from orchestrate.report.charts import check_library
    from orchestrate.report.gather import gather
    from orchestrate.report.page import render_page
    from orchestrate.version import package_version

    check_library()
    target: Path = args.output or Path("report.html")
    if target.suffix.lower() not in {".html", ".htm"}:
        # A report must not land on a run's own file by a slip of the hand.
        raise RefusedError("a report's name ends in .html.", "Choose another name for -o.", target)
    check_place(target)
    check_replaceable(target, target.suffix)
    run = gather(args.run, content=args.content)
    made_at = datetime.now(UTC).isoformat(sep=" ", timespec="minutes")
    page = render_page(run, content=args.content, version=package_version(), made_at=made_at)
    try:
        durable.make_dir(target.absolute().parent)
        durable.publish(target, page)
    except OSError as error:
        raise kind_of(error)(f"the report cannot be written: {error.strerror}.", "Choose another -o.", target) from error
    print(target)
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="gym eval report",
        description="Put scores with coverage, states, sessions, failures and distributions of a run into one HTML file that "
        "needs no network. Example: gym eval report math-1f2e3d4c -o report.html",
    )
    parser.add_argument("run", metavar="RUN", help=RUN_WORDS)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to write it; default: report.html here")
    parser.add_argument("--content", action="store_true", help="show texts of models and servers, shortened")
    return parser

"""``gym eval watch``: the status of a run again and again, until it is over. Ctrl-C leaves the jobs alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from orchestrate.cli.parser import CommandParser
from orchestrate.run_words import WHOLE_WORDS

if TYPE_CHECKING:
    from orchestrate.runs.directory import RunDir
    from orchestrate.status.report import RunReport

#: Seconds without a live job or finisher after which nothing more is expected.
_QUIET_S: Final = 6.0
_LEAST_PAUSE_S: Final = 1.0


def main(argv: list[str]) -> int:
    """Return 0 when the run is complete. Raises IncompleteError or NothingMeasuredError when it ended otherwise."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.every < _LEAST_PAUSE_S:
        parser.error(f"--every {args.every:g}: less than {_LEAST_PAUSE_S:g} s would only keep the scheduler busy")
    from orchestrate.remote.forward import forwarded

    if (code := forwarded("watch", args.run, argv)) is not None:
        return code
    from orchestrate.cli.wait import final_text
    from orchestrate.named import whole_run
    from orchestrate.status.over import check_over

    run = whole_run(args.run)
    try:
        found = follow(run, every_s=args.every, show=_screen() if sys.stdout.isatty() else _in_turn)
    except KeyboardInterrupt:
        print(f"\nThe jobs go on. Watch again with: gym eval watch {run.root}", file=sys.stderr)
        return 130
    print(f"\n{final_text(found)}")
    check_over(found)
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="gym eval watch",
        description="Show the status of a run until it is over. Example: gym eval watch math-1f2e3d4c --every 30",
        epilog="Ctrl-C ends the watching, not the jobs.",
    )
    parser.add_argument("run", nargs="?", metavar="RUN", help=f"{WHOLE_WORDS}; default: the last one")
    parser.add_argument("--every", type=float, default=10.0, metavar="SECONDS", help="seconds between two looks (10)")
    return parser


def follow(run: RunDir, *, every_s: float, show: Callable[[str], None]) -> RunReport:
    """Show the run at each look where it changed, and return its last report when nothing more will happen."""
    from orchestrate.cli.status import as_text
    from orchestrate.cli.tables import terminal_width
    from orchestrate.status.gather import report
    from orchestrate.status.over import Ending

    shown = ""
    ending = Ending(_QUIET_S)
    while True:
        found = report(run)
        text = as_text(found, each_shard=False, with_ages=False, width=terminal_width())
        if text != shown:
            show(f"{found.asked_at}\n{text}")
            shown = text
        if ending.is_seen(found):
            return found
        time.sleep(min(every_s, _QUIET_S / 2) if ending.is_near else every_s)


def _in_turn(text: str) -> None:
    # Whoever reads a pipe or a log reads it now, not when the watch is over.
    print(text, flush=True)


def _screen() -> Callable[[str], None]:
    def show(text: str) -> None:
        # Home and clear: a terminal shows one state, not their history.
        sys.stdout.write(f"\x1b[H\x1b[2J{text}\n")
        sys.stdout.flush()

    return show

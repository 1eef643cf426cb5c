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

#: Seconds without a live job after which nothing more is expected. A requeued job may be unlisted for a moment.
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


def follow(
    run: RunDir, *, every_s: float, show: Callable[[str], None], sleep: Callable[[float], None] = time.sleep
) -> RunReport:
    """Show the run at each look where it changed, and return its last report when nothing more will happen."""
    from orchestrate.cli.status import as_text
    from orchestrate.cli.tables import terminal_width
    from orchestrate.status.gather import report

    shown = ""
    quiet_since: float | None = None
    while True:
        found = report(run)
        text = as_text(found, each_shard=False, with_ages=False, width=terminal_width())
        if text != shown:
            show(f"{found.asked_at}\n{text}")
            shown = text
        if found.is_settled:
            return found
        is_quiet = not (found.has_live_jobs or found.has_live_finisher)
        quiet_since = None if not is_quiet else quiet_since or time.monotonic()
        if quiet_since is not None and time.monotonic() - quiet_since > _QUIET_S:
            return found
        sleep(every_s if quiet_since is None else min(every_s, _QUIET_S / 2))


def _in_turn(text: str) -> None:
    # Whoever reads a pipe or a log reads it now, not when the watch is over.
    print(text, flush=True)


def _screen() -> Callable[[str], None]:
    def show(text: str) -> None:
        # Home and clear: a terminal shows one state, not their history.
        sys.stdout.write(f"\x1b[H\x1b[2J{text}\n")
        sys.stdout.flush()

    return show


def check_over(found: RunReport) -> None:
    """Raise IncompleteError or NothingMeasuredError unless every benchmark is complete and merged."""
    from collector.errors import IncompleteError
    from orchestrate.outcome import check_outcome

    for benchmark in found.benchmarks:
        if benchmark.coverage is None or any(shard.trouble for shard in benchmark.shards):
            raise IncompleteError("some shards cannot be read.", f"See gym eval status {found.name}.", benchmark.name)
        check_outcome(benchmark.coverage, benchmark.name)
        if benchmark.merged is None:
            raise IncompleteError("was not merged.", f"See gym eval logs {found.name} --failed.", benchmark.name)

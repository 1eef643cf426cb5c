"""``gym eval logs``: what the jobs of a run, or their services, wrote."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Final

from collector.text.counted import counted
from orchestrate.cli.parser import CommandParser
from orchestrate.run_words import SUBMITTED_WORDS

if TYPE_CHECKING:
    from orchestrate.operate.logs import LogChoice, LogFile
    from orchestrate.runs.directory import RunDir
    from orchestrate.runs.plan import SubmitPlan

#: Logs shown at once unless a shard is named; more would push the first ones off the screen.
_FILES_SHOWN: Final = 16
_PAUSE_S: Final = 0.5
#: Seconds between two questions to the scheduler while logs are followed.
_ASK_EVERY_S: Final = 10.0


def main(argv: list[str]) -> int:
    """Print the last lines of each log and return 0, also when nothing failed. Raises NotFoundError when there is none."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.lines < 0:
        parser.error("--lines: must not be negative")
    from orchestrate.remote.forward import forwarded

    if (code := forwarded("logs", args.run, argv)) is not None:
        return code
    from orchestrate.named import run_and_benchmark
    from orchestrate.runs.directory import read_plan

    run, args.benchmark = run_and_benchmark(args.run, args.benchmark)
    plan = read_plan(run)
    try:
        return _show(run, plan, args)
    except KeyboardInterrupt:
        return 130


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="gym eval logs",
        description="Show what jobs wrote. Example: gym eval logs math-1f2e3d4c --failed",
    )
    parser.add_argument("run", nargs="?", metavar="RUN", help=f"{SUBMITTED_WORDS}; default: the last one")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until no job is left; Ctrl-C leaves the jobs")
    parser.add_argument("--benchmark", metavar="NAME", help="only jobs of this benchmark")
    parser.add_argument("--shard", type=int, metavar="I", help="only jobs of this shard")
    parser.add_argument(
        "--failed", action="store_true", help="only shards that are unfinished and have no live job, or are broken"
    )
    parser.add_argument("--service", metavar="NAME", help="the logs of this service instead of the jobs' own; also: command")
    parser.add_argument("-n", "--lines", type=int, default=20, metavar="N", help="last lines of each log (20)")
    return parser


def _show(run: RunDir, plan: SubmitPlan, args: argparse.Namespace) -> int:
    from orchestrate.operate.logs import Follower, follow, last_lines, logs_of

    choice = _choice(run, plan, args)
    if choice.shards is not None and not any(choice.takes(*shard) for shard in choice.shards):
        print("No shard is unfinished without a live job, and none is broken.", file=sys.stderr)
        return 0
    files = logs_of(run, plan, choice)
    if not files and not args.follow:
        raise _nothing(run)
    follower = Follower(lambda line: print(line, flush=True))
    shown = files if args.shard is not None else files[-_FILES_SHOWN:]
    if len(shown) < len(files):
        left_out = len(files) - len(shown)
        print(f"{counted(left_out, 'more log')}: narrow them with --benchmark, --shard or --failed", file=sys.stderr)
    for file in files:
        lines, offset = last_lines(file.path, args.lines)
        follower.begin(file.path, offset)
        if file in shown:
            _print(file, lines)
    if args.follow:
        follow(
            follower,
            lambda: logs_of(run, plan, choice),
            lambda: _is_over(run, plan),
            pause_s=_PAUSE_S,
            ask_every_s=_ASK_EVERY_S,
        )
    return 0


def _print(file: LogFile, lines: list[str]) -> None:
    print(f"==> {file.label}: {file.path}")
    print("\n".join([*lines, ""]))


def _choice(run: RunDir, plan: SubmitPlan, args: argparse.Namespace) -> LogChoice:
    from collector.errors import NotFoundError
    from orchestrate.operate.cancel import check_selection
    from orchestrate.operate.logs import LogChoice

    check_selection(plan, args.benchmark, args.shard)
    services = [name for name, service in plan.config.services.items() if service.type != "external"]
    if any(benchmark.command is not None for benchmark in plan.config.driver.benchmarks.values()):
        # What a command writes has its job's name, as that of a service.
        services.append("command")
    if args.service is not None and args.service not in services:
        raise NotFoundError(
            f"no job starts a service {args.service!r}.", f"They start: {', '.join(services) or 'none'}.", plan.name
        )
    shards = _failed_shards(run) if args.failed else None
    return LogChoice(args.benchmark, args.shard, args.service, shards)


def _failed_shards(run: RunDir) -> frozenset[tuple[str, int]]:
    """Shards that cannot be read, or are unfinished while no job works on them for certain."""
    from orchestrate.status.gather import report

    return frozenset(
        (benchmark.name, shard.index)
        for benchmark in report(run).benchmarks
        for shard in benchmark.shards
        if shard.trouble or shard.is_left_alone
    )


def _is_over(run: RunDir, plan: SubmitPlan) -> bool:
    from orchestrate.operate.jobs import jobs_of

    found = jobs_of(run, plan)
    return not found.live and found.trouble is None


def _nothing(run: RunDir) -> Exception:
    from collector.errors import NotFoundError

    what = "there are no logs: no job has written anything yet, or gym eval clean removed them."
    return NotFoundError(what, f"See gym eval status {run.root.name}.", run.root)

"""``gym eval status``: how far a submitted run is, and with ``--waste`` what its jobs spent on it."""

from __future__ import annotations

import gc
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from collector.text.counted import agreeing, counted
from orchestrate.cli.parser import CommandParser
from orchestrate.run_words import SUBMITTED_WORDS

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Generator

    from orchestrate.status.report import BenchmarkReport, ExportReport, RunReport, ShardReport

#: Benchmarks with more shards than this are shown by state, unless --shards asks for each.
_SHARDS_SHOWN = 16
#: The state of a shard that is not final and whose job neither waits nor runs, for all that the scheduler still knows.
_GONE = "gone"
#: Characters of a benchmark's name that a narrow terminal shows in the table; lines below it have the whole name.
_NAME_LEAST = 12
#: Columns that leave that table for lines below it, in this order, until it fits.
_MOVED = ("failures", "jobs", "score")


def main(argv: list[str]) -> int:
    """Print the report and return 0: an unfinished run is no error of this command."""
    args = _parser().parse_args(argv)
    with _without_garbage_collection():
        return _look(args, argv)


@contextmanager
def _without_garbage_collection() -> Generator[None]:
    # One look leaves few cycles and is over soon; to search all that it loads for them takes a tenth of its time.
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _look(args: Namespace, argv: list[str]) -> int:
    from orchestrate.remote.forward import forwarded

    if (code := forwarded("status", args.run, argv)) is not None:
        return code
    from orchestrate.named import run_and_benchmark, whole_run

    if args.waste:
        from orchestrate.cli.tables import terminal_width
        from orchestrate.cli.waste_text import waste_text
        from orchestrate.operate.waste import waste_of

        waste = waste_of(whole_run(args.run))
        print(waste.model_dump_json(indent=2) if args.json else waste_text(waste, terminal_width()))
        return 0
    from orchestrate.cli.tables import terminal_width
    from orchestrate.status.gather import report

    run, benchmark = run_and_benchmark(args.run, None)
    found = report(run, benchmark=benchmark)
    print(found.model_dump_json(indent=2) if args.json else as_text(found, each_shard=args.shards, width=terminal_width()))
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="gym eval status",
        description="Show how far a run is. Example: gym eval status math-1f2e3d4c",
    )
    parser.add_argument("run", nargs="?", metavar="RUN", help=f"{SUBMITTED_WORDS}; default: the last one")
    parser.add_argument("--shards", action="store_true", help="show each shard, however many there are")
    parser.add_argument("--waste", action="store_true", help="show job hours per scored rollout and where the others went")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser


def as_text(found: RunReport, *, each_shard: bool, with_ages: bool = True, width: int | None = None) -> str:
    """The report for people, in lines of ``width`` characters as far as names and paths allow."""
    from orchestrate.cli.tables import age_text, fitted, kinds_of, score_of, wrapped

    header = ["benchmark", "score", "done", "jobs", "failures", "last event"]
    rows: list[list[str]] = []
    for benchmark in found.benchmarks:
        coverage = benchmark.coverage
        done = coverage.completed if coverage else 0
        kinds = kinds_of(coverage.failures_by_kind) if coverage else "-"
        age = age_text(benchmark.age_s) if with_ages else ""
        rows.append([benchmark.name, score_of(coverage), f"{done}/{benchmark.expected}", _jobs(benchmark), kinds, age])
    parts = [f"{found.name}  {found.run_dir}"]
    if not with_ages:
        header, rows = header[:-1], [row[:-1] for row in rows]
    parts += fitted(header, rows, width=width, movable=_MOVED, spare=(("benchmark", _NAME_LEAST),))
    for benchmark in found.benchmarks:
        details = _details(benchmark, found, with_ages=with_ages)
        parts += [wrapped(line, width) for line in details]
        parts += _shards(benchmark, each_shard=each_shard, with_ages=with_ages, width=width)
    if found.scheduler_trouble:
        told = f"The scheduler could not be asked ({found.scheduler_trouble}); counts are from the run's own files."
        parts.append(wrapped(told, width))
    return "\n".join(parts)


def _stands(export: ExportReport) -> str:
    return "not made yet" if export.standing == "never" else export.standing


def _details(benchmark: BenchmarkReport, report: RunReport, *, with_ages: bool) -> list[str]:
    from orchestrate.cli.result_text import warnings_of
    from orchestrate.cli.tables import states_of

    coverage = benchmark.coverage
    parts = [f"{benchmark.name}: {line}" for line in [states_of(coverage), *warnings_of(coverage)]] if coverage else []
    parts += [f"{benchmark.name}: {trouble}" for trouble in benchmark.submission_troubles]
    parts += [f"{benchmark.name}: {line}" for line in _waiting(benchmark, with_ages=with_ages)]
    parts += [f"{benchmark.name}: {line}" for line in _left_alone(benchmark, report)]
    if benchmark.merged is not None:
        notes = ["partial: what was unfinished then is not in it"] if benchmark.merged_partially else []
        notes += ["older than its shards, which recorded more since"] if benchmark.merged_is_older else []
        noted = f" ({'; '.join(notes)})" if notes else ""
        parts.append(f"{benchmark.name}: merged into {benchmark.merged}{noted}")
    if benchmark.older_result is not None:
        parts.append(f"{benchmark.name}: the whole result of before its shards were opened again: {benchmark.older_result}")
    parts += [
        f"{benchmark.name}: export {export.name} {_stands(export)}{f': {export.detail}' if export.detail else ''}"
        for export in benchmark.exports
    ]
    return parts


def _waiting(benchmark: BenchmarkReport, *, with_ages: bool) -> list[str]:
    """Which services running jobs wait for. Jobs of one service stand together: each may have it at a port of its own."""
    from orchestrate.cli.tables import age_text

    lines: list[str] = []
    for service, waits in benchmark.waits_by_service.items():
        jobs = len(waits)
        longest = max(waits, key=lambda wait: wait.waited_s)
        places = list(dict.fromkeys(wait.address for wait in waits))
        where = places[0] if len(places) == 1 else f"{places[0]} and {counted(len(places) - 1, 'other address')}"
        so_far = f", {age_text(longest.waited_s)} so far" if with_ages else ""
        reason = f": {longest.reason}" if longest.reason else ""
        who = f"{counted(jobs, 'job')} {agreeing(jobs, 'wait')} for service {service} at {where}"
        lines.append(f"{who}{so_far}, {age_text(longest.limit_s)} at most{reason}")
    return lines


def _left_alone(benchmark: BenchmarkReport, report: RunReport) -> list[str]:
    """Which shards nobody goes on with, why their jobs ended, and what to do."""
    left = benchmark.left_alone
    if not left:
        return []
    gone = " (gone: it ended, or the scheduler has forgotten it)" if any(_state(shard) == _GONE for shard in left) else ""
    who = "1 unfinished shard has" if len(left) == 1 else f"{len(left)} unfinished shards have"
    advice = f"gym eval logs {report.name} --failed shows what was said last, and the same gym eval submit goes on"
    return [f"{who} no live job{gone}: {advice}", *(f"a job ended: {words}" for words in benchmark.job_endings)]


def _jobs(benchmark: BenchmarkReport) -> str:
    states = Counter(_state(shard) for shard in benchmark.shards)
    return ", ".join(f"{count} {state}" for state, count in states.most_common())


def _state(shard: ShardReport) -> str:
    from orchestrate.scheduler import Knowledge

    if shard.trouble:
        return "broken"
    if shard.final:
        return "final"
    match shard.knowledge:
        case None:
            return "no job"
        case Knowledge.COULD_NOT_ASK:
            return "could not ask"
        case Knowledge.NOT_THERE:
            return _GONE
        case Knowledge.KNOWN:
            return (shard.job_state or "").lower()


def _shards(benchmark: BenchmarkReport, *, each_shard: bool, with_ages: bool, width: int | None) -> list[str]:
    from orchestrate.cli.tables import age_text, noted, table
    from orchestrate.scheduler import Knowledge

    shown = benchmark.shards if each_shard or len(benchmark.shards) <= _SHARDS_SHOWN else []
    rows = [
        [
            f"  {shard.index}",
            _state(shard),
            f"{shard.completed}/{shard.expected}",
            str(shard.sessions),
            age_text(shard.age_s) if with_ages else "",
            shard.job_id or "-",
        ]
        for shard in shown
    ]
    if not with_ages:
        rows = [[*row[:4], *row[5:]] for row in rows]
    header = ["  shard", "state", "done", "sessions", *(["last event"] if with_ages else []), "job"]
    # Why the scheduler could not be asked is said once, below.
    notes = [shard.trouble or (_note(shard) if shard.knowledge is Knowledge.KNOWN else "") for shard in shown]
    return [noted(table(header, rows), notes, width)] if rows else []


def _note(shard: ShardReport) -> str:
    from orchestrate.submission.refusals import explained

    waits = f"waits for service {', '.join(wait.service for wait in shard.waits)}" if shard.waits else ""
    return "; ".join(filter(None, [explained(shard.detail), waits]))

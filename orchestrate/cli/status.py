"""``gym eval status``: how far a submitted run is."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from orchestrate.cli.parser import CommandParser

if TYPE_CHECKING:
    from orchestrate.status import BenchmarkReport, RunReport, ShardReport

#: Benchmarks with more shards than this are shown by state, unless --shards asks for each.
_SHARDS_SHOWN = 16


def main(argv: list[str]) -> int:
    """Print the report and return 0: an unfinished run is no error of this command."""
    args = _parser().parse_args(argv)
    from orchestrate.runindex import find_run
    from orchestrate.status import report

    found = report(find_run(args.run))
    if args.json:
        print(found.model_dump_json(indent=2))
    else:
        print(as_text(found, each_shard=args.shards))
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="gym eval status",
        description="Show how far a run is. Example: gym eval status math-1f2e3d4c",
    )
    parser.add_argument("run", nargs="?", metavar="RUN", help="run directory, name or its beginning; default: the last one")
    parser.add_argument("--shards", action="store_true", help="show each shard, however many there are")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser


def as_text(found: RunReport, *, each_shard: bool) -> str:
    """The report for people."""
    from orchestrate.cli.tables import kinds_of, score_of, states_of, table

    rows: list[list[str]] = []
    details: list[str] = []
    for benchmark in found.benchmarks:
        coverage = benchmark.coverage
        done = coverage.completed if coverage else 0
        kinds = kinds_of(coverage.failures_by_kind) if coverage else "-"
        rows.append([benchmark.name, score_of(coverage), f"{done}/{benchmark.expected}", _jobs(benchmark), kinds])
        details += [f"{benchmark.name}: {states_of(coverage)}"] if coverage else []
        details += _shards(benchmark, each_shard=each_shard)
    parts = [f"{found.name}  {found.run_dir}", table(["benchmark", "score", "done", "jobs", "failures"], rows), *details]
    if found.scheduler_trouble:
        parts.append(f"The scheduler could not be asked ({found.scheduler_trouble}); counts are from the run's own files.")
    return "\n".join(parts)


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
            return "job is gone"
        case Knowledge.KNOWN:
            return (shard.job_state or "").lower()


def _shards(benchmark: BenchmarkReport, *, each_shard: bool) -> list[str]:
    from orchestrate.cli.tables import age_text, table

    shown = benchmark.shards if each_shard or len(benchmark.shards) <= _SHARDS_SHOWN else []
    rows = [
        [
            f"  {shard.index}",
            _state(shard),
            f"{shard.completed}/{shard.expected}",
            str(shard.sessions),
            age_text(shard.age_s),
            shard.job_id or "-",
            shard.trouble or shard.detail,
        ]
        for shard in shown
    ]
    return [table(["  shard", "state", "done", "sessions", "last event", "job", ""], rows)] if rows else []

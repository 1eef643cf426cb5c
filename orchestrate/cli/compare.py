"""``gym eval compare``: candidates beside a base, and a gate for pipelines."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrate.cli.parser import CommandParser
from orchestrate.run_words import RUN_WORDS

if TYPE_CHECKING:
    from merge.compare.gate import GateResult
    from merge.compare.load import Side
    from merge.compare.verdict import Comparison

_log = logging.getLogger(__name__)
#: A gate does not hold, or the evidence does not decide it. Not 6: nothing is unfinished, and waiting would not help.
_GATE_EXIT = 9
#: What a narrow terminal has less of. Numbers are never cut: they would be others.
_SPARE = (("verdict", 10), ("difference", 0), ("candidate", 0), ("base", 0), ("metric", 12), ("verdict", 5), ("metric", 5))


def main(argv: list[str]) -> int:
    """Compare, publish the reports, print them, and return 0, or 9 when a gate did not pass."""
    args = _parser().parse_args(argv)
    from collector import durable
    from merge.compare.gate import GateState, judge_all, parse_gate
    from merge.compare.load import load_side
    from merge.compare.report import encode_json, encode_markdown
    from merge.compare.verdict import compare_all
    from merge.publication.replaceable import check_replaceable
    from orchestrate.output_place import check_place

    gates = [parse_gate(text) for text in args.gate]
    base = load_side(_place(args.base, args.benchmark), args.agent)
    sides = [load_side(_place(text, args.benchmark), args.agent) for text in args.candidates]
    comparisons = compare_all(base, sides, pair_by_index=args.pair_by_index)
    results = judge_all(gates, comparisons)
    as_json = encode_json(comparisons, results)
    folder: Path = args.output_dir or sides[-1].path.parent
    reports = {"compare_report.json": as_json, "compare_report.md": encode_markdown(comparisons, results)}
    for name in reports:
        check_place(folder / name)
        check_replaceable(folder / name, name)
    durable.make_dir(folder)
    for name, data in reports.items():
        durable.publish(folder / name, data)
    print(as_json.decode() if args.json else _as_text(comparisons, results, folder), end="")
    return _GATE_EXIT if any(result.state is not GateState.PASSED for result in results) else 0


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="gym eval compare",
        description="Compare runs of one dataset. "
        "Example: gym eval compare base.jsonl new.jsonl --gate mean/reward:min_delta=-0.01",
        epilog=f"A run is {RUN_WORDS}, or an *_aggregate_metrics.json. "
        "Exit code 9: a gate failed, or the evidence does not decide it.",
        elsewhere=dict.fromkeys(("--baseline", "--candidates"), "Runs stand without flags: gym eval compare BASE CAND..."),
    )
    parser.add_argument("base", metavar="BASE", help="what candidates are held against")
    parser.add_argument("candidates", nargs="+", metavar="CAND", help="one run or several")
    parser.add_argument("--gate", action="append", default=[], metavar="METRIC:min_delta=N", help="may be given several times")
    parser.add_argument("--benchmark", metavar="NAME", help="which benchmark, where runs have several")
    parser.add_argument("--agent", metavar="NAME", help="which agent, where a file has several")
    parser.add_argument(
        "--pair-by-index", action="store_true", help="take tasks of equal number for the same where nothing shows it"
    )
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help="where reports go; default: beside the last candidate")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser


def _place(text: str, benchmark: str | None) -> Path:
    """The file or directory whose metrics are meant."""
    from collector.artifacts import RunArtifacts
    from orchestrate.named import named, one_result

    path = Path(text)
    # Metrics may stand without their rows.
    if path.name.endswith("_aggregate_metrics.json") or (path.name and RunArtifacts(path).aggregate.is_file()):
        return path
    found = named(text)
    if found.run is None and found.rollouts is None:
        return found.path
    result = one_result(found, benchmark).artifacts
    if found.run is not None:
        from orchestrate.runs.standing import older_results

        if older_results(found.run, [result]):
            _log.warning("older than its shards, which recorded more since: %s", result.rollouts)
    return result.rollouts


def _as_text(comparisons: tuple[Comparison, ...], results: list[GateResult], folder: Path) -> str:
    from collector.text.visible import visible
    from merge.compare.report import coverage_text, interval_text, number_text, settings_text, whole_means_text
    from orchestrate.cli.tables import path_line, table, terminal_width, wrapped

    width = terminal_width()

    def side_line(title: str, side: Side) -> str:
        return path_line(title, visible(str(side.path)), f" ({coverage_text(side)})", width)

    def fitting(lines: Iterable[str]) -> list[str]:
        return [wrapped(line, width) for line in lines]

    lines = [side_line("base       ", comparisons[0].base)]
    for comparison in comparisons:
        lines.append(side_line("candidate  ", comparison.candidate))
        lines += fitting([f"compared   {comparison.how}", *settings_text(comparison)])
        rows = [
            [
                visible(m.metric),
                number_text(m.paired_base),
                number_text(m.paired_candidate),
                number_text(m.delta, sign=True),
                interval_text(m),
                str(m.tasks),
                m.verdict,
            ]
            for m in comparison.metrics
        ]
        header = ["metric", "base", "candidate", "difference", "95 % interval", "tasks", "verdict"]
        lines.append(table(header, rows, width=width, spare=_SPARE))
        lines += fitting(whole_means_text(comparison))
        main_metric = comparison.reward
        if main_metric is not None:
            # What is asked for first, and whole: a narrow table cuts its last column.
            reason = f" ({main_metric.reason})" if main_metric.reason else ""
            lines += fitting([f"{main_metric.metric}: {main_metric.verdict}{reason}"])
        if comparison.is_paired:
            lines.append(f"tasks fixed {len(comparison.fixed)}, broken {len(comparison.broken)}")
    lines += fitting(f"gate {visible(r.gate.metric)} at least {r.gate.min_delta:+g}: {r.state} ({r.reason})" for r in results)
    # The path is for opening: cut or broken it could not be copied.
    return "\n".join([*lines, f"  {folder / 'compare_report.md'}"]) + "\n"

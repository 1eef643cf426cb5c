"""What a merge says when it is made: its score with its coverage, its files, and the exit code that they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collector.text.counted import counted

if TYPE_CHECKING:
    from collector.artifacts import RunArtifacts
    from merge.command import MergeReport


def tell(report: MergeReport, *, as_json: bool) -> int:
    """``show`` and ``outcome_of``."""
    show(report, as_json=as_json)
    return outcome_of(report)


def show(report: MergeReport, *, as_json: bool) -> None:
    """Print ``report``."""
    import json
    import sys

    from collector.artifacts import RunArtifacts

    merged = RunArtifacts(report.target)
    coverage: dict[str, Any] = json.loads(merged.coverage.read_bytes())
    if as_json:
        key = [{"agent": a["agent_ref"]["name"], **a["key_metrics"]} for a in json.loads(merged.aggregate.read_bytes())]
        print(json.dumps({"output": str(report.target), "coverage": coverage, "key_metrics": key}, indent=2))
    else:
        print("\n".join(_lines(report, coverage, merged)))
    for note in report.notes:
        print(note, file=sys.stderr)


def outcome_of(report: MergeReport) -> int:
    """Return 0, or raise what the coverage means."""
    from orchestrate.outcome import check_outcome

    if report.is_expected_known or not report.coverage.measured:
        check_outcome(report.coverage, str(report.target))
    return 0


def _lines(report: MergeReport, coverage: dict[str, Any], merged: RunArtifacts) -> list[str]:
    from orchestrate.cli.result_text import result_lines

    score, *others = result_lines(report.coverage, is_expected_known=report.is_expected_known)
    lines = [score]
    zeros = coverage.get("counted_as_zero")
    if zeros:
        total = zeros["measured"] + zeros["failures_counted_as_zero"] + zeros["imputed"]
        mean = zeros["mean_reward_with_zeros"]
        expected = coverage["expected"] if report.is_expected_known else "?"
        lines.append(
            f"with 0s   {'no score' if mean is None else f'{mean:.4g}'} ({total}/{expected}): "
            f"{zeros['measured']} measured, {counted(zeros['failures_counted_as_zero'], 'failure')} counted as 0, "
            f"{zeros['imputed']} missing imputed as 0"
        )
    lines += others
    if report.coverage.partial:
        lines.append("PARTIAL   shards or unfinished rollouts are not in it")
    return [*lines, *(f"  {path}" for path in (merged.rollouts, merged.coverage, merged.aggregate) if path.exists())]

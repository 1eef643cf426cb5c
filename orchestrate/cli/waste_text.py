"""The waste of a run for people: job hours per scored rollout, and where the others went."""

from __future__ import annotations

from orchestrate.cli.tables import table
from orchestrate.operate.waste import BenchmarkWaste, WasteReport


def waste_text(report: WasteReport) -> str:
    """One line a benchmark; what cannot be known is a dash."""
    header = ["benchmark", "measured", "job hours", "a rollout", "queued", "start-up", "killed", "failed attempts", "cut off"]
    lines = [f"{report.name}", table(header, [_row(item) for item in report.benchmarks])]
    if report.accounting_trouble is not None:
        why = report.accounting_trouble
        lines.append(f"Job hours are those of the collectors' sessions; queueing and start-up are not known ({why}).")
    lines += [f"left out: {trouble}" for trouble in report.troubles]
    return "\n".join(lines)


def _row(item: BenchmarkWaste) -> list[str]:
    each = item.job_hours_per_rollout
    return [
        item.benchmark,
        str(item.measured),
        f"{item.job_s / 3600:.3g}",
        "-" if each is None else f"{each * 3600:.3g} s",
        _span(item.queued_s),
        _span(item.startup_s),
        _span(item.preempted_s),
        f"{item.failed_attempts} ({_span(item.failed_attempts_s)})",
        str(item.interrupted_attempts),
    ]


def _span(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 3600:.2g} h"

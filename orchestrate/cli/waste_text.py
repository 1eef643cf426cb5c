"""The waste of a run for people: job hours per scored rollout, and where the others went."""

from __future__ import annotations

from typing import Final

from collector.text.counted import agreeing, counted
from orchestrate.cli.tables import fitted, wrapped
from orchestrate.operate.waste import BenchmarkWaste, WasteReport

_HEADER: Final = (
    "benchmark",
    "measured",
    "job hours",
    "a rollout",
    "queued",
    "start-up",
    "killed",
    "failed attempts",
    "cut off",
)
#: Columns that become lines below a table that is too wide, the first one first.
_MOVED: Final = ("failed attempts", "cut off", "killed")


def waste_text(report: WasteReport, width: int | None = None) -> str:
    """One line a benchmark, of ``width`` characters at most; what cannot be known is a dash."""
    lines = [report.name, *fitted(_HEADER, [_row(item) for item in report.benchmarks], width=width, movable=_MOVED)]
    for item in report.benchmarks:
        if item.open_attempts:
            told = f"{counted(item.open_attempts, 'attempt')} {agreeing(item.open_attempts, 'have')} no outcome yet"
            lines.append(wrapped(f"{item.benchmark}: {told}: in flight, or cut off with a session that was killed", width))
    if report.accounting_trouble is not None:
        why = report.accounting_trouble
        told = f"Job hours are those of the collectors' sessions; queueing and start-up are not known ({why})."
        lines.append(wrapped(told, width))
    lines += [wrapped(f"left out: {trouble}", width) for trouble in report.troubles]
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

"""A comparison as Markdown for people and JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

import orjson

from collector.text.visible import visible
from merge.compare.gate import GateResult
from merge.compare.load import Side
from merge.compare.verdict import Comparison, Flip, MetricDifference

FORMAT: Final = 1
#: Flips shown in the Markdown; the JSON has all of them.
_SHOWN: Final = 20


def encode_json(comparisons: Sequence[Comparison], gates: Sequence[GateResult]) -> bytes:
    """The file's bytes: indented JSON with a final newline."""
    report = {
        "schema_version": FORMAT,
        "base": _side(comparisons[0].base),
        "candidates": [_candidate(comparison) for comparison in comparisons],
        "gates": [asdict(result) for result in gates],
    }
    try:
        return orjson.dumps(report, option=orjson.OPT_INDENT_2) + b"\n"
    except TypeError:
        # A name that is no UTF-8, or a setting beyond 64 bits: here in escapes, and in all its digits.
        return json.dumps(report, indent=2).encode() + b"\n"


def encode_markdown(comparisons: Sequence[Comparison], gates: Sequence[GateResult]) -> bytes:
    """The file's bytes."""
    lines = ["# Comparison", "", f"Base: `{visible(str(comparisons[0].base.path))}` ({coverage_text(comparisons[0].base)})"]
    for comparison in comparisons:
        lines += ["", *_section(comparison)]
    if gates:
        lines += ["", "## Gates", "", "| gate | candidate | result | why |", "| --- | --- | --- | --- |"]
        lines += [_gate_row(result) for result in gates]
    return ("\n".join(lines) + "\n").encode()


def coverage_text(side: Side) -> str:
    """``90/100 scored``, with the word partial where the file says so."""
    scored, expected = ("?" if count is None else count for count in (side.scored, side.expected))
    return f"{scored}/{expected} scored{', partial' if side.is_partial else ''}"


def settings_text(comparison: Comparison) -> list[str]:
    """The settings that differ, one line each; a line that says so when none do, or when it is not known."""
    changes = comparison.changes
    if changes is None:
        return ["Settings: not known of both runs, since a manifest is missing."]
    if not changes:
        return ["Settings: the same."]
    return ["Settings that differ:", *(f"- {visible(change.text)}" for change in changes)]


def number_text(value: float | None, *, sign: bool = False) -> str:
    """Four digits, or a dash for what is not there."""
    return "-" if value is None else f"{value:+.4g}" if sign else f"{value:.4g}"


def interval_text(metric: MetricDifference) -> str:
    """``[-0.01, 0.02]``, or a dash."""
    return "-" if metric.interval is None else f"[{metric.interval.low:+.4g}, {metric.interval.high:+.4g}]"


def whole_means_text(comparison: Comparison) -> list[str]:
    """The means over all rollouts where they are not those of the table: each reason once, then a line for each metric."""
    lines: list[str] = []
    for reason in dict.fromkeys(metric.means_reason for metric in comparison.metrics if metric.means_reason):
        lines.append(f"Means over all rollouts are not the table's, which count each task once: {reason}.")
        lines += [
            f"- {visible(metric.metric)} over all rollouts: base {number_text(metric.base)}, "
            f"candidate {number_text(metric.candidate)}"
            for metric in comparison.metrics
            if metric.means_reason == reason
        ]
    return lines


def _section(comparison: Comparison) -> list[str]:
    candidate = comparison.candidate
    lines = [
        f"## `{visible(str(candidate.path))}`",
        "",
        f"{coverage_text(candidate)}; compared {comparison.how}.",
        "",
        *settings_text(comparison),
        "",
        "| metric | base | candidate | difference | 95 % interval | tasks | verdict |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [_row(metric) for metric in comparison.metrics]
    lines += ["", *whole] if (whole := whole_means_text(comparison)) else []
    if not comparison.is_paired:
        return [*lines, "", "Without pairs it is not known which tasks were fixed or broken."]
    lines += [
        "",
        f"Tasks that pass now and did not: {len(comparison.fixed)}; that passed and do not: {len(comparison.broken)}.",
    ]
    for name, flips in (("Fixed", comparison.fixed), ("Broken", comparison.broken)):
        lines += _flips(name, flips)
    return lines


def _row(metric: MetricDifference) -> str:
    verdict = f"{metric.verdict}{f' ({metric.reason})' if metric.reason else ''}"
    cells = [
        metric.metric,
        number_text(metric.paired_base),
        number_text(metric.paired_candidate),
        number_text(metric.delta, sign=True),
        interval_text(metric),
        str(metric.tasks),
        verdict,
    ]
    return f"| {' | '.join(map(_cell, cells))} |"


def _gate_row(found: GateResult) -> str:
    limit = f"{_cell(found.gate.metric)} at least {found.gate.min_delta:+g}"
    return f"| {limit} | `{_cell(found.candidate)}` | **{found.state}** | {found.reason} |"


def _cell(text: str) -> str:
    return visible(text).replace("|", "\\|")


def _flips(name: str, flips: Sequence[Flip]) -> list[str]:
    if not flips:
        return []
    ranked = sorted(flips, key=lambda flip: (-abs(flip.candidate - flip.base), flip.task))
    shown = [f"{flip.task} ({flip.base:.3g} to {flip.candidate:.3g})" for flip in ranked[:_SHOWN]]
    more = f" and {len(flips) - _SHOWN} more" if len(flips) > _SHOWN else ""
    return ["", f"{name}: {', '.join(shown)}{more}."]


def _side(side: Side) -> dict[str, Any]:
    return {
        "path": str(side.path),
        "agent": side.agent,
        "source_digest": side.source_digest,
        "partial": side.is_partial,
        "expected": side.expected,
        "scored": side.scored,
        "reward_bounds": side.bounds,
    }


def _metric(metric: MetricDifference) -> dict[str, Any]:
    return {**asdict(metric), "interval": None if metric.interval is None else list(metric.interval)}


def _candidate(comparison: Comparison) -> dict[str, Any]:
    return {
        **_side(comparison.candidate),
        "paired": comparison.is_paired,
        "settings_changed": None if (changes := comparison.changes) is None else [asdict(change) for change in changes],
        "metrics": [_metric(metric) for metric in comparison.metrics],
        "flips": {"fixed": [asdict(f) for f in comparison.fixed], "broken": [asdict(f) for f in comparison.broken]},
    }

"""Numbers as tables for people: a score is never shown without its coverage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from collector.coverage import Coverage


def score_of(coverage: Coverage | None, *, is_expected_known: bool = True) -> str:
    """``0.8889 (90/100, bounds 0.8 to 0.9)``: mean reward and the rollouts it rests on; ``no score`` when nothing was measured.

    The bounds, for rewards in [0, 1] only, are what the mean would be if every other rollout had got 0, and 1.
    """
    if coverage is None:
        return "unreadable"
    base = f"{coverage.measured}/{coverage.expected if is_expected_known else '?'}"
    if coverage.mean is None:
        return f"no score ({base})"
    if coverage.bounds is None or not is_expected_known or coverage.measured == coverage.expected:
        return f"{coverage.mean:.4g} ({base})"
    low, high = coverage.bounds
    return f"{coverage.mean:.4g} ({base}, bounds {low:.4g} to {high:.4g})"


def kinds_of(failures: Mapping[str, int]) -> str:
    """``transport_timeout 3, judge_failed 1``, most frequent first."""
    ranked = sorted(failures.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{kind} {count}" for kind, count in ranked) or "-"


def states_of(coverage: Coverage) -> str:
    """The states that occur, in their fixed order; they add up to ``expected``."""
    return ", ".join(f"{state} {count}" for state, count in coverage.states.items() if count)


def age_text(seconds: float | None) -> str:
    """``12 s``, ``5 min``, ``3 h``, ``2 d``; ``-`` before the first event."""
    if seconds is None:
        return "-"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as their widest cell."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)

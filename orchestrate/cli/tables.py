"""Numbers as tables for people: a score is never shown without its coverage."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from collector.state.coverage import Coverage
from collector.text.visible import visible

#: Between two columns.
_GAP: Final = "  "
#: Stands for what was left out: not every terminal has an ellipsis.
_CUT: Final = ".."


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
    return ", ".join(f"{visible(kind)} {count}" for kind, count in ranked) or "-"


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


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, width: int | None = None, spare: Iterable[tuple[str, int]] = ()
) -> str:
    """Columns as wide as their widest cell; with a ``width`` no line is longer as far as ``spare`` allows.

    ``spare`` names columns and to how many characters their cells may be cut, in the order in which they are; 0 spares
    every cell and cuts no more than the column's header. Columns that it does not name are never cut.
    """
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    over = 0 if width is None else sum(widths) + len(_GAP) * (len(widths) - 1) - width
    for name, least in spare:
        column = header.index(name)
        floor = least or max((len(line[column]) for line in lines[1:]), default=0)
        taken = max(0, min(over, widths[column] - max(floor, len(_CUT))))
        widths[column] -= taken
        over -= taken
    return "\n".join(
        _GAP.join(_cut(cell, size).ljust(size) for cell, size in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def fitted(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    width: int | None,
    movable: Iterable[str],
    spare: Iterable[tuple[str, int]] = (),
) -> list[str]:
    """The table of ``rows``, whose first column names them, and below it each ``movable`` column that it has no room for.

    Those go in the order in which they stand, line by line and whole.
    """
    shown_header, shown_rows = list(header), [list(row) for row in rows]
    below: list[str] = []
    waiting = list(movable)
    while True:
        shown = table(shown_header, shown_rows, width=width, spare=spare)
        if width is None or max(map(len, shown.splitlines())) <= width or not waiting:
            return [shown, *below]
        column = shown_header.index(waiting.pop(0))
        name = shown_header.pop(column)
        below += [wrapped(f"{row[0]}: {name} {row[column]}", width) for row in shown_rows if row[column] != "-"]
        shown_rows = [[*row[:column], *row[column + 1 :]] for row in shown_rows]


def terminal_width() -> int | None:
    """The columns of the terminal that standard output is. None where it is no terminal: what is piped is never cut."""
    # There is no standard output where it was closed.
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return shutil.get_terminal_size().columns if is_terminal else None


def wrapped(line: str, width: int | None, *, indent: str = _GAP) -> str:
    """``line`` in lines of ``width`` characters at most, broken between words; as it stands without a width."""
    if width is None or len(line) <= width:
        return line
    return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def noted(shown: str, notes: Sequence[str], width: int | None) -> str:
    """The table ``shown`` with a note behind each of its rows, or below it where there is no room in ``width`` characters."""
    header, *lines = shown.splitlines()
    edge = max(map(len, (header, *lines)))
    found = [header]
    for line, note in zip(lines, notes, strict=True):
        beside = f"{line.ljust(edge)}{_GAP}{note}" if note else line
        if width is None or len(beside) <= width:
            found.append(beside)
        else:
            found += [line, wrapped(_GAP * 2 + note, width, indent=_GAP * 2)]
    return "\n".join(found)


def path_line(before: str, path: str, after: str, width: int | None) -> str:
    """The three side by side, with as much of the path's end as there is room for in ``width`` characters."""
    room = len(path) if width is None else max(len(_CUT), width - len(before) - len(after))
    return f"{before}{path if len(path) <= room else _CUT + path[len(path) - room + len(_CUT) :]}{after}"


def _cut(cell: str, size: int) -> str:
    return cell if len(cell) <= size else cell[: size - len(_CUT)] + _CUT

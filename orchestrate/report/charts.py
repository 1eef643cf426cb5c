"""Plots as inline SVG without scripts, links or fonts from elsewhere. The only module that knows the plotting library."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final
from unicodedata import east_asian_width
from xml.etree.ElementTree import Element

from markupsafe import Markup

from collector.errors import RequestError
from collector.outcomes import RolloutState
from collector.state.coverage import Coverage
from orchestrate.report.bins import Distribution, ticks
from orchestrate.report.sessions import SessionSpan

if TYPE_CHECKING:
    from pygal.graph.graph import Graph

#: States from good to bad, with colours that differ in lightness too.
STATE_COLOURS: Final = {
    RolloutState.MEASURED: "#2f7d4f",
    RolloutState.MASKED: "#8fbf9f",
    RolloutState.UNSCORED: "#5b8fd6",
    RolloutState.OMITTED: "#b9c4d6",
    RolloutState.FAILED: "#c23b3b",
    RolloutState.EXHAUSTED: "#7a1f3d",
    RolloutState.UNKNOWN: "#e2a03f",
    RolloutState.NEVER_DISPATCHED: "#d9d9d9",
}
#: How a session ended.
SESSION_COLOURS: Final = {"ended by itself": "#2f7d4f", "cut off": "#c23b3b", "no end yet": "#e2a03f"}
_INK: Final = "#33404f"
_FONT: Final = "system-ui, sans-serif"
#: Shards drawn in a timeline; more lines than this are a grey block.
MOST_LINES: Final = 60
_WIDTH: Final = 520


def check_library() -> None:
    """Raise RequestError with the install command when plots cannot be drawn."""
    if find_spec("pygal") is None:
        raise RequestError("a report needs pygal, which is not installed.", "Run: pip install 'gym-eval[report]'")


def state_bars(named: Sequence[tuple[str, Coverage]]) -> Markup:
    """One stacked bar a benchmark: the share of its rollouts in each state."""
    import pygal  # noqa: PLC0415 - an extra, needed only by this command

    states = [state for state in RolloutState if any(coverage.states.get(state) for _, coverage in named)]
    colours = [STATE_COLOURS[state] for state in states]
    named = named[::-1]  # the library draws from below
    look = {**_look(colours, height=44 + 30 * len(named)), "show_minor_y_labels": True}
    chart = pygal.HorizontalStackedBar(**look, show_legend=False, range=(0, 100))
    chart.x_labels = [_label(name, 18) for name, _ in named]
    chart.y_labels = [0, 25, 50, 75, 100]
    chart.value_formatter = "{:.4g} %".format
    for state in states:
        chart.add(state, [100 * coverage.states.get(state, 0) / max(1, coverage.expected) for _, coverage in named])
    return _svg(chart, "Share of rollouts in each state, by benchmark", "states")


def histogram(found: Distribution, title: str, colour: str, name: str) -> Markup:
    """Bars over bins. ``name`` is unique on the page."""
    import pygal  # noqa: PLC0415 - as above

    look = {**_look([colour], height=240), "show_minor_y_labels": True}
    chart = pygal.Bar(**look, show_legend=False, spacing=2, range=(0, max(found.counts)))
    chart.y_labels = ticks(max(found.counts), whole=True)
    chart.x_labels = list(found.labels)
    step = max(1, len(found.labels) // 4)
    # The last bin may hold what lies far out, which its label says.
    chart.x_labels_major = [*found.labels[: 1 - step : step], found.labels[-1]] if step > 1 else list(found.labels)
    chart.show_minor_x_labels = False
    chart.value_formatter = "{:,.0f}".format
    chart.add(title, list(found.counts))
    return _svg(chart, title, name)


def timeline(spans: Sequence[SessionSpan], name: str) -> Markup | None:
    """One line a shard over time, in the colour of how each session ended; None without a session."""
    if not spans:
        return None
    import pygal  # noqa: PLC0415 - as above

    lines = {shard: line for line, shard in enumerate(_shown_shards(spans), start=1)}
    start = min(span.begin for span in spans)
    whole = max(span.end for span in spans) - start
    unit, size = _time_unit(whole)
    look = {**_look(list(SESSION_COLOURS.values()), height=70 + 17 * len(lines), line_width="6"), "show_minor_y_labels": True}
    chart = pygal.XY(
        **look, allow_interruptions=True, show_dots=True, dots_size=3, x_title=f"{unit} since the first session",
        show_legend=False,
    )  # fmt: skip
    chart.x_value_formatter = "{:.3g}".format
    chart.x_labels = ticks(whole / size)
    step = -(-len(lines) // 20)
    chart.y_labels = [{"value": -line, "label": f"shard {shard}"} for shard, line in lines.items() if (line - 1) % step == 0]
    chart.range = (-len(lines) - 0.5, 0)
    for ending, wanted in zip(SESSION_COLOURS, (_has_ended, _is_cut_off, _is_open), strict=True):
        points: list[tuple[float, float] | None] = []
        for span in spans:
            if span.shard in lines and wanted(span):
                y = -lines[span.shard]
                points += [((span.begin - start) / size, y), ((span.end - start) / size, y), None]
        chart.add(ending, points)
    return _svg(chart, "Sessions of each shard over time", name)


def _shown_shards(spans: Sequence[SessionSpan]) -> list[int]:
    """The shards with the most sessions when there are too many to draw, in order of their index."""
    counts: dict[int, int] = {}
    for span in spans:
        counts[span.shard] = counts.get(span.shard, 0) + 1
    return sorted(sorted(counts, key=lambda shard: (-counts[shard], shard))[:MOST_LINES])


def _has_ended(span: SessionSpan) -> bool:
    return span.reason is not None


def _is_cut_off(span: SessionSpan) -> bool:
    return span.is_cut_off


def _is_open(span: SessionSpan) -> bool:
    return span.reason is None and not span.is_cut_off


def _time_unit(seconds: float) -> tuple[str, float]:
    for unit, size in (("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return unit, size
    return "seconds", 1.0


def _look(colours: Sequence[str], *, height: int, line_width: str = "0") -> dict[str, Any]:
    from pygal.style import Style  # noqa: PLC0415 - as above

    style = Style(
        background="transparent", plot_background="transparent", foreground=_INK, foreground_strong=_INK,
        foreground_subtle="#7d8894", opacity="1", opacity_hover="1", colors=tuple(colours), font_family=_FONT,
        label_font_size=13, major_label_font_size=13, legend_font_size=13, title_font_size=14,
        guide_stroke_color="#e3e7ec", major_guide_stroke_color="#e3e7ec", transition="0s", stroke_width=line_width,
        stroke_width_hover=line_width, stroke_opacity="1",
    )  # fmt: skip
    return {
        "style": style, "width": _WIDTH, "height": height, "explicit_size": False, "js": [], "margin": 8, "margin_right": 26,
        "disable_xml_declaration": True, "truncate_label": -1,
        "show_minor_y_labels": False, "print_values": False, "y_labels_major_count": 4,
    }  # fmt: skip


def _label(text: str, limit: int) -> str:
    """``text`` in a width of ``limit`` letters; signs of East Asian scripts are as wide as two."""
    widths = accumulate(1 + (east_asian_width(sign) in {"W", "F"}) for sign in text)
    fits = sum(width <= limit for width in widths)
    return text if fits == len(text) else text[: fits - 1] + "…"


def _svg(chart: Graph, title: str, name: str) -> Markup:
    # Two reports of one run are equal byte for byte, and no identifier occurs twice on a page.
    chart.uuid = name
    chart.add_xml_filter(_strip)
    text = chart.render(is_unicode=True)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    # The library escapes every text that it is given.
    return Markup(text.replace("<svg ", f'<svg role="img" aria-label="{Markup.escape(title)}" ', 1))  # noqa: S704


def _strip(root: Element) -> Element:
    """Remove the scripts that the library adds for tooltips: the page must be readable, and safe, without any."""
    for parent in list(root.iter()):
        for child in list(parent):
            if str(child.tag).rpartition("}")[2] == "script":
                parent.remove(child)
    return root

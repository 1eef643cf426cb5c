"""From the facts of a run to the page: what is shown where, and the one rendering with everything escaped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup

from collector.outcomes import RolloutState
from collector.state.coverage import Coverage
from collector.text.counted import counted
from merge.health.checks import Verdict
from merge.metrics.figures import mean_of
from orchestrate.report import charts
from orchestrate.report.bins import Distribution, distribute, short
from orchestrate.report.gather import BenchmarkFacts, RunFacts, ShardFacts, each_failure
from orchestrate.report.text import plain

#: Tiles of a heat map; a run with more shards shows the worst.
MOST_TILES: Final = 1000


@dataclass(frozen=True, slots=True)
class Plot:
    """One drawing with its caption and its figures as text."""

    title: str
    svg: Markup
    figures: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Tile:
    """One shard in a heat map."""

    index: int
    text: str
    hint: str
    colour: str
    ink: str


def render_page(run: RunFacts, *, content: bool, version: str, made_at: str) -> bytes:
    """The whole file. Every text passes through escaping; texts of models are in ``run`` only where they were asked for."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - other commands start without it

    environment = Environment(
        loader=PackageLoader("orchestrate.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    covered = [(plain(one.name, 60), one.coverage) for one in run.benchmarks if one.coverage is not None]
    page = environment.get_template("page.html.j2").render(
        title=plain(run.title, 120),
        path=plain(str(run.path), 400),
        made_at=made_at,
        version=version,
        content=content,
        bars=charts.state_bars(covered) if covered else None,
        colours={state.value: colour for state, colour in charts.STATE_COLOURS.items()},
        endings=charts.SESSION_COLOURS,
        benchmarks=[_section(one, number) for number, one in enumerate(run.benchmarks)],
    )
    return page.encode("utf-8", "replace")


def _section(facts: BenchmarkFacts, number: int) -> dict[str, Any]:
    timeline = charts.timeline(facts.sessions, f"sessions-{number}")
    return {
        "id": f"b{number}",
        "name": plain(facts.name, 120),
        **_score(facts),
        "projection": plain(facts.projection, 300),
        "states": _states(facts.coverage),
        "tiles": [_tile(shard) for shard in _worst(facts.shards)] if len(facts.shards) > 1 else [],
        "tiles_left_out": counted(left_out, "shard") if (left_out := len(facts.shards) - MOST_TILES) > 0 else "",
        "troubles": [(shard.index, plain(shard.trouble, 400)) for shard in facts.shards if shard.trouble],
        "timeline": timeline,
        "sessions": _sessions(facts),
        "plots": _plots(facts, number),
        "failures": [(plain(kind, 80), counted(count, "rollout"), examples) for kind, count, examples in each_failure(facts)],
        "health": _health(facts.health),
        "examples": facts.figures.examples,
        "unreadable": counted(facts.figures.unreadable, "row") if facts.figures.unreadable else "",
    }


def _score(facts: BenchmarkFacts) -> dict[str, str]:
    """The score with what it rests on; never one without the other."""
    coverage, rewards = facts.coverage, facts.figures.rewards
    if coverage is None:
        mean = short(mean_of(rewards)) if rewards else "no score"
        return {
            "score": mean, "rests_on": counted(len(rewards), "scored row"), "share": "",
            "bounds": "These rows have no journal: how many were expected is not known.", "notes": "",
        }  # fmt: skip
    notes = [f"{counted(coverage.truncated, 'answer')} cut by the token limit"] if coverage.truncated else []
    notes += [f"unfinished: {counted(coverage.unfinished, 'rollout')}"] if coverage.unfinished else []
    notes += [] if coverage.identity_verified else ["the experiment's identity is not verified"]
    return {
        "score": "no score" if coverage.mean is None else f"{coverage.mean:.4g}",
        "rests_on": f"{coverage.measured:,} of {counted(coverage.expected, 'rollout')}",
        "share": f"{100 * coverage.measured / max(1, coverage.expected):.3g} %",
        "bounds": _bounds(coverage),
        "notes": "; ".join(notes),
    }


def _bounds(coverage: Coverage) -> str:
    if coverage.bounds is None:
        return ""
    low, high = coverage.bounds
    if low == high:
        return "every expected rollout is measured"
    return f"between {low:.4g} and {high:.4g}, whatever the missing ones would have scored"


def _states(coverage: Coverage | None) -> list[tuple[str, int, str]]:
    if coverage is None:
        return []
    found = [(state, coverage.states.get(state, 0)) for state in RolloutState]
    return [(state.value, count, charts.STATE_COLOURS[state]) for state, count in found if count]


def _worst(shards: Sequence[ShardFacts]) -> list[ShardFacts]:
    if len(shards) <= MOST_TILES:
        return list(shards)
    return sorted(sorted(shards, key=_done)[:MOST_TILES], key=lambda shard: shard.index)


def _done(shard: ShardFacts) -> float:
    return -1.0 if shard.coverage is None else shard.coverage.completed / max(1, shard.coverage.expected)


def _tile(shard: ShardFacts) -> Tile:
    if shard.coverage is None:
        return Tile(shard.index, "!", f"shard {shard.index}: cannot be read", "#c23b3b", "#fff")
    coverage, done = shard.coverage, _done(shard)
    hint = (
        f"shard {shard.index}: {coverage.completed} of {coverage.expected} completed, score "
        f"{'none' if coverage.mean is None else short(coverage.mean)}, {counted(len(shard.sessions), 'session')}"
    )
    # From pale to dark with the share that is completed; whole shards stand out from nearly whole ones.
    lightness = 92 - 50 * done if done < 1 else 32
    colour = f"hsl(145 {45 if done >= 1 else 35}% {lightness:.0f}%)"
    return Tile(shard.index, f"{int(100 * done)}%", hint, colour, "#fff" if lightness < 60 else "#22303c")


def _sessions(facts: BenchmarkFacts) -> str:
    spans = facts.sessions
    if not spans:
        return ""
    cut = sum(span.is_cut_off for span in spans)
    shards = len({span.shard for span in spans})
    told = f"{counted(len(spans), 'session')} on {counted(shards, 'shard')}; {cut:,} cut off (preempted, killed or lost)."
    return told + (f" The {charts.MOST_LINES} shards with the most sessions are drawn." if shards > charts.MOST_LINES else "")


def _plots(facts: BenchmarkFacts, number: int) -> list[Plot]:
    figures = facts.figures
    wanted = [
        ("Rewards", figures.rewards, "#2f7d4f", "rollouts by reward"),
        ("Latency", facts.latencies, "#5b8fd6", "seconds of an attempt"),
        ("Answer length", figures.completion_tokens, "#7b5ea7", "tokens of a completion"),
        ("Prompt length", figures.prompt_tokens, "#9a7b4f", "tokens of a prompt"),
        ("Judge answer length", figures.judge_completion_tokens, "#a75e8c", "tokens of a judgement"),
        ("Judge prompt length", figures.judge_prompt_tokens, "#4f7f9a", "tokens of a judge's prompt"),
    ]
    plots: list[Plot] = []
    for title, values, colour, unit in wanted:
        found: Distribution | None = distribute(values)
        if found is not None:
            plots.append(
                Plot(
                    f"{title}, {unit}",
                    charts.histogram(found, f"{title}, {unit}", colour, f"plot-{number}-{len(plots)}"),
                    found.figures,
                )
            )
    return plots


def _health(summary: dict[str, Any] | None) -> dict[str, Any] | None:
    if summary is None:
        return None
    run = summary["run"]
    verdicts, issues = run["verdicts"], run["issues"]
    found = [(plain(name, 80), count) for name, count in issues.items() if count]
    return {"verdicts": [(verdict.value, verdicts.get(verdict.value, 0)) for verdict in Verdict], "issues": found}

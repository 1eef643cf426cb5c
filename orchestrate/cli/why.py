"""``gym eval why``: the story of one rollout over its attempts, and what the next resume would do with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrate.cli.parser import CommandParser
from orchestrate.run_words import RUN_WORDS

if TYPE_CHECKING:
    from orchestrate.operate.rollouts import Found


def main(argv: list[str]) -> int:
    """Print the story and return 0. Raises NotFoundError for an unknown run or rollout."""
    args = _parser().parse_args(argv)
    from orchestrate.remote.forward import forwarded

    if (code := forwarded("why", args.run, argv)) is not None:
        return code
    found = _found(args.run, args.rollout, args.benchmark)
    print(_as_json(found) if args.json else _as_text(found))
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="gym eval why",
        description="Explain one rollout: its attempts and what comes next. Example: gym eval why math-1f2e 17-0",
    )
    parser.add_argument("run", nargs="?", metavar="RUN", help=f"{RUN_WORDS}; default: the last one")
    parser.add_argument("rollout", metavar="ROLLOUT", help="its id: <task>-<repeat>")
    parser.add_argument("--benchmark", metavar="NAME", help="only in this benchmark")
    parser.add_argument("--json", action="store_true", help="print the story as JSON")
    return parser


def _found(run: str | None, rollout: str, benchmark: str | None) -> list[Found]:
    from orchestrate.named import named, run_and_benchmark
    from orchestrate.operate.rollouts import stories_in_run, story_at

    what = None if run is None else named(run)
    # A merged file has no history of its own: that is in its shards.
    if what is not None and (rollouts := what.rollouts) is not None and (rollouts.journal.exists() or what.run is None):
        from collector.state.recorded_retry import recorded_retry

        return [story_at(rollouts.rollouts, rollout, retry=recorded_retry([rollouts]))]
    found, chosen = run_and_benchmark(run, benchmark)
    return stories_in_run(found, rollout, benchmark=chosen)


def _as_text(found: list[Found]) -> str:
    from collector.timeline.words import render
    from orchestrate.cli.tables import terminal_width, wrapped

    width = terminal_width()
    parts: list[str] = []
    for item in found:
        file = str(item.artifacts.rollouts)
        # A single run has no other name than its file.
        parts.append(file if item.place == file else f"{item.place}: {file}")
        parts += [wrapped(f"  {line}", width, indent="      ") for line in render(item.timeline)]
    return "\n".join(parts)


def _as_json(found: list[Found]) -> str:
    import json

    shown = [{"place": item.place, "path": str(item.artifacts.rollouts), **item.timeline.to_json()} for item in found]
    return json.dumps(shown, indent=2, ensure_ascii=False)

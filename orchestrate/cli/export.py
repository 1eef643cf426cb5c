"""``gym eval export``: a finished run to one exporter, or the configured exports of a submitted run that did not arrive."""

from __future__ import annotations

import argparse
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from exporters.names import BUILTIN, DEFAULT
from orchestrate.cli.export_words import Words, compose_settings, split_tokens
from orchestrate.cli.parser import CommandParser
from orchestrate.run_words import RUN_WORDS

if TYPE_CHECKING:
    from exporters.base import ExportResult
    from orchestrate.named import Named, Result

_log = logging.getLogger(__name__)
#: Flag to the key that it sets.
_KEYS: Final = {
    "rollouts": "rollouts_jsonl_fpath",
    "output_dir": "output_dirpath",
    "session_id": "session_id",
    "agent_version": "agent_version",
}


def main(argv: list[str]) -> int:
    """Export, print how it ended, and return 0 when everything arrived and 1 when not."""
    parser = _parser()
    args = parser.parse_intermixed_args(argv)
    words = split_tokens(args.tokens)
    if not args.tokens and args.rollouts is None:
        from collector.errors import RequestError

        ways = "gym eval export EXPORTER RUN (or --rollouts FILE), or RUN alone for what its configuration says"
        raise RequestError("no run was named.", f"Write {ways}.")
    if words.exporter is None and words.run is not None and args.format is None:
        return _configured(parser, words, args)
    name = _checked_name(parser, words.exporter, args.format)
    if words.run is not None and args.rollouts is not None:
        parser.error(f"{words.run} and --rollouts {args.rollouts} both name a run")
    values = compose_settings({key: getattr(args, flag) for flag, key in _KEYS.items()}, words.overrides)
    results = _export_each(name, values, words.run)
    print(_as_json(name, results) if args.json else _as_text(name, results))
    return 0 if all(result.is_success for _, result in results) else 1


def _configured(parser: CommandParser, words: Words, args: argparse.Namespace) -> int:
    """The exports that a submitted run is configured with."""
    from collector.errors import NotFoundError
    from orchestrate.cli.export_missing import export_missing
    from orchestrate.named import named, run_and_benchmark

    if words.overrides and words.overrides[0] in BUILTIN:
        parser.error(f"the exporter comes first: gym eval export {words.overrides[0]} {words.run}")
    if words.overrides or any(getattr(args, flag) is not None for flag in (*_KEYS, "format")):
        parser.error("a run is exported as its configuration says: it takes no other setting unless an exporter is named first")
    if named(words.run or "").run is None:
        what = "no submission says how this is exported."
        raise NotFoundError(what, f"Name an exporter first: gym eval export EXPORTER {words.run}.", words.run or "")
    run, benchmark = run_and_benchmark(words.run, None)
    return export_missing(run, benchmark=benchmark, as_json=args.json)


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="gym eval export",
        description="Export a finished run. Example: gym eval export atif out/math.jsonl "
        "--output-dir out/atif --agent-version 1.0.0",
        epilog=f"Exporters: {', '.join(sorted(BUILTIN))}, and those of installed packages; the default is {DEFAULT}. "
        "Settings of an exporter are overrides as in +key=value; flags come first, so an override wins (++key=value). "
        f"RUN: {RUN_WORDS}. Without an exporter, the configured exports of a submitted run that are missing are made.",
    )
    parser.add_argument(
        "tokens", nargs="*", metavar="[EXPORTER] [RUN] OVERRIDE", help="an exporter, a run, then settings as +key=value"
    )
    parser.add_argument("--rollouts", metavar="RUN", help="the run again, for scripts that name it by a flag")
    parser.add_argument("--output-dir", metavar="DIR", help="where the exporter makes its folder")
    parser.add_argument("--session-id", metavar="TEXT", help="names the session in each trajectory")
    parser.add_argument("--agent-version", metavar="TEXT", help="the version of the agent")
    parser.add_argument("--format", metavar="EXPORTER", help="deprecated: name the exporter as the first argument")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def _checked_name(parser: CommandParser, name: str | None, former: str | None) -> str:
    from collector.registry import unknown_name_hint
    from exporters.registry import EXPORTERS

    if former is not None:
        _log.warning("--format is deprecated: write 'gym eval export %s'.", former)
        if name not in (None, former):
            parser.error(f"the exporter is {name} by its name and {former} by --format")
    chosen = name or former or DEFAULT
    names = EXPORTERS.names()
    if chosen not in names:
        parser.error(f"unknown exporter {chosen!r}. {unknown_name_hint(chosen, names)}".rstrip("."))
    return chosen


def _export_each(name: str, values: dict[str, Any], run: str | None) -> list[tuple[Result, ExportResult]]:
    """The export of each benchmark that was named. Raises IncompleteError before any when one is not merged yet."""
    from collector.errors import ConfigError, IncompleteError
    from exporters.direct import export_run
    from orchestrate.named import named, results_of
    from orchestrate.rollout_rows import check_rollouts

    given = values.pop("rollouts_jsonl_fpath", run)
    if not isinstance(given, str) or not given.strip():
        raise ConfigError(
            "rollouts_jsonl_fpath: names the run's rollouts as text.",
            "Name a run after the exporter, or give --rollouts FILE or +rollouts_jsonl_fpath=FILE.",
        )
    found = named(given)
    results = results_of(found)
    unmerged = [str(result.name) for result in results if not result.artifacts.rollouts.is_file()]
    if unmerged:
        raise IncompleteError(f"not merged yet: {', '.join(unmerged)}.", "Export again when they are.", given)
    for result in results:
        check_rollouts(result.artifacts)
    _check_age(found, results)
    places = [_in_folder_of_its_own(values, result) if len(results) > 1 else values for result in results]
    try:
        return [(result, export_run(name, place, result.artifacts)) for result, place in zip(results, places, strict=True)]
    except ConfigError as error:
        raise ConfigError(error.what, f"{error.fix}{_ways_to_give(name, error.what)}", error.where) from error


def _ways_to_give(name: str, problems: str) -> str:
    """How missing settings are given on a command line, for people who read their names as those of a file."""
    missing = re.findall(rf"export\.{re.escape(name)}\.(\w+): is missing", problems)
    flags = {key: f"--{flag.replace('_', '-')}" for flag, key in _KEYS.items()}
    ways = [f"{flags[key]} or +{key}=VALUE" if key in flags else f"+{key}=VALUE" for key in missing]
    return f" Give {', '.join(ways)}." if ways else ""


def _check_age(found: Named, results: list[Result]) -> None:
    """Raise IncompleteError for a run whose result is older than its shards; of a file named by itself it is only said."""
    from collector.errors import IncompleteError

    if found.run is None:
        return
    from orchestrate.runs.standing import older_results

    older = older_results(found.run, [result.artifacts for result in results])
    if not older:
        return
    names = ", ".join(str(result.rollouts) for result in older)
    if found.rollouts is None:
        what = f"older than its shards, which recorded more since: {names}."
        raise IncompleteError(what, "Export again when it is merged, or name the file itself.", found.path)
    _log.warning("older than its shards, which recorded more since: %s", names)


def _in_folder_of_its_own(values: dict[str, Any], result: Result) -> dict[str, Any]:
    """The settings with a folder of the benchmark's: files of all benchmarks have the same names."""
    from collector.errors import ConfigError

    if "output_fpath" in values:
        raise ConfigError("output_fpath: the run has several benchmarks, and this is one file.", "Give --output-dir instead.")
    folder = values.get("output_dirpath")
    return values if folder is None else {**values, "output_dirpath": str(Path(folder) / result.slug)}


def _as_text(name: str, results: list[tuple[Result, ExportResult]]) -> str:
    if len(results) == 1:
        return "\n".join(results[0][1].lines(name))
    return "\n".join(f"{found.name}: {line}" for found, result in results for line in result.lines(name))


def _as_json(name: str, results: list[tuple[Result, ExportResult]]) -> str:
    """One object, or for a run with several benchmarks a list of them."""
    import json

    shown = [
        {
            **({"benchmark": found.name} if len(results) > 1 else {}),
            "exporter": name,
            "state": result.state.value,
            "message": result.message,
            "details": result.details,
            "evidence": result.evidence,
        }
        for found, result in results
    ]
    return json.dumps(shown if len(shown) > 1 else shown[0], indent=2, ensure_ascii=False)

"""``gym eval aggregate``: shards become one file of rows, its coverage and its metrics."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrate.cli.parser import CommandParser, count
from orchestrate.run_words import RUN_WORDS

if TYPE_CHECKING:
    from collector.artifacts import RunArtifacts
    from collector.settings import RetrySettings
    from merge.health.run import HealthChoice
    from merge.publication.generation import Reporting

#: What can be said as ``key=value`` too, with or without a plus, as NeMo Gym's command takes it.
_KEYS = (
    "input_glob",
    "output_jsonl_fpath",
    "merge_shards",
    "count_failure_classes_as_zero",
    "count_missing_rollouts_as_zero",
    "retry_terminal_timeouts",
    "max_attempts",
    "max_interruptions",
    "metrics",
    "subset_key",
    "disable_health_check",
    "health_check_ignored_checks",
    "health_check_workers",
)


#: What makes an input a pattern instead of a name.
_GLOB_SIGNS = frozenset("*?[")


def main(argv: list[str]) -> int:
    """Aggregate, print the scores with their coverage, and return 0 when everything completed.

    Raises IncompleteError (6) when something is missing, partial output or not, NothingMeasuredError (7), NoTasksError (8).
    """
    args = _parser().parse_intermixed_args(argv)
    inputs, keys = _split(args.inputs)
    from collector.errors import RequestError
    from merge.command import merge_paths
    from merge.inputs.sources import find_runs
    from orchestrate.cli.merge_text import outcome_of, show
    from orchestrate.output_place import check_place

    patterns = [*map(input_of, inputs), *_patterns(args.input_glob), *_patterns(_text(keys, "input_glob"))]
    output = args.output or _text(keys, "output_jsonl_fpath")
    if not patterns or output is None:
        raise RequestError("an input and an output are needed.", "Usage: gym eval aggregate RUN -o FILE.jsonl.")
    health = _health(args, keys)
    check_place(Path(output))
    check_merge_place(Path(output), patterns)
    report = merge_paths(
        patterns,
        Path(output),
        allow_partial=args.allow_partial,
        retry=_retry(keys, find_runs(patterns)),
        reporting=_reporting(keys),
        with_rows=_flag(keys, "merge_shards", default=True),
    )
    show(report, as_json=args.json)
    if health is not None and report.receipt is not None:
        from collector.artifacts import RunArtifacts
        from orchestrate.cli.health_note import print_health_note

        print_health_note(RunArtifacts(report.target), health)
    return outcome_of(report)


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="gym eval aggregate",
        description="Merge shards into one file with coverage and metrics. "
        "Example: gym eval aggregate runs/math-1f2e3d4c/math -o math.jsonl",
        epilog="Keys, as KEY=VALUE or +KEY=VALUE: count_missing_rollouts_as_zero=true, count_failure_classes_as_zero=[a,b], "
        "retry_terminal_timeouts=true, max_attempts=N, max_interruptions=N, merge_shards=false (coverage and metrics only), "
        "metrics=[a,b] (of installed packages), subset_key=FIELD (the pass@k family of each subset, too), input_glob=..., "
        "output_jsonl_fpath=..., disable_health_check=true, health_check_ignored_checks=[a,b], health_check_workers=N",
    )
    parser.add_argument("inputs", nargs="*", metavar="RUN", help=f"{RUN_WORDS}, or a glob; then keys")
    parser.add_argument("-i", "--input-glob", metavar="GLOB[,GLOB]", help="patterns of rollouts files")
    parser.add_argument("-o", "--output", metavar="PATH", help="the merged file; its companions are written beside it")
    parser.add_argument(
        "--allow-partial",
        action="store_true",
        help="merge what there is; the output is labelled and named <stem>.partial.jsonl",
    )
    parser.add_argument("--json", action="store_true", help="print coverage and key metrics as JSON")
    parser.add_argument("--no-health-check", action="store_true", help="leave out the health check of the merged file")
    parser.add_argument("--health-check-ignore", metavar="A,B", help="checks that it leaves out")
    parser.add_argument("--health-check-workers", type=count, metavar="N", help="its processes; default: one a processor")
    return parser


def _split(words: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Inputs and keys. A word is a key's when it has a known name before its first =, or begins with a plus."""
    from collector.errors import RequestError
    from collector.registry import unknown_name_hint

    inputs: list[str] = []
    keys: dict[str, Any] = {}
    for word in words:
        name, sign, value = word.lstrip("+").partition("=")
        if sign and name in _KEYS:
            keys[name] = _value(name, value)
        elif word.startswith("+"):
            raise RequestError(f"unknown key {name!r}.", unknown_name_hint(name, sorted(_KEYS)))
        else:
            inputs.append(word)
    return inputs, keys


def _value(name: str, text: str) -> Any:
    import yaml

    from collector.errors import RequestError

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise RequestError(f"{name} has no value that can be read: {text!r}.", "Quote it, or close its brackets.") from error


def _text(keys: dict[str, Any], name: str) -> str | None:
    from collector.errors import RequestError

    value = keys.get(name)
    if isinstance(value, list | dict):
        raise RequestError(f"{name} is {value!r}.", "It is a text.")
    return None if value is None else str(value)


def _patterns(value: str | None) -> list[str]:
    return [part for part in value.split(",") if part] if value is not None else []


def _flag(keys: dict[str, Any], name: str, *, default: bool = False) -> bool:
    from collector.errors import RequestError

    value = keys.get(name, default)
    if not isinstance(value, bool):
        raise RequestError(f"{name} is {value!r}.", "It is true or false.")
    return value


def _names(keys: dict[str, Any], name: str) -> tuple[str, ...]:
    from collector.errors import RequestError

    value = keys.get(name) or []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise RequestError(f"{name} is {value!r}.", f"It is a list: {name}=[a,b].")
    return tuple(value)


def _retry(keys: dict[str, Any], runs: Sequence[RunArtifacts]) -> RetrySettings:
    """The settings of retries that ``runs`` were collected under, with those of ``keys`` over them."""
    from pydantic import ValidationError

    from collector.errors import RequestError
    from collector.settings import RetrySettings
    from orchestrate.counted_under import retry_of

    names = ("retry_terminal_timeouts", "max_attempts", "max_interruptions")
    try:
        RetrySettings.model_validate(given := {name: keys[name] for name in names if name in keys})
    except ValidationError as error:
        problem = error.errors()[0]
        told = problem["msg"].removeprefix("Value error, ")
        raise RequestError(f"{problem['loc'][0]}: {told[:1].lower()}{told[1:]}.", "Change it.") from error
    return RetrySettings.model_validate({**retry_of(runs).model_dump(), **given})


def _reporting(keys: dict[str, Any]) -> Reporting:
    from merge.metrics.counting import Counting
    from merge.publication.generation import Reporting

    counting = Counting(_names(keys, "count_failure_classes_as_zero"), _flag(keys, "count_missing_rollouts_as_zero"))
    return Reporting(counting, _names(keys, "metrics"), _text(keys, "subset_key"))


def _health(args: Namespace, keys: dict[str, Any]) -> HealthChoice | None:
    """The check that is asked for, whose settings are right; None when it is switched off."""
    from collector.errors import RequestError
    from merge.health.checks import parse_ignored
    from merge.health.run import HealthChoice

    workers = args.health_check_workers or keys.get("health_check_workers")
    if workers is not None and (type(workers) is not int or workers < 1):
        raise RequestError(f"health_check_workers is {workers!r}.", "It is a whole number from 1.")
    ignored = args.health_check_ignore
    found = parse_ignored(_names(keys, "health_check_ignored_checks") if ignored is None else ignored)
    is_off = args.no_health_check or _flag(keys, "disable_health_check")
    return None if is_off else HealthChoice(tuple(sorted(found)), workers)


def input_of(word: str) -> str:
    """The path that an input means: itself, a glob as it stands, or where the run with this name lies."""
    from orchestrate.named import named

    return word if not _GLOB_SIGNS.isdisjoint(word) or Path(word).exists() else str(named(word).path)


def check_merge_place(target: Path, inputs: Sequence[str]) -> None:
    """Raise RefusedError when ``target`` is a place or a file of another submitted run than that of ``inputs``."""
    from merge.inputs.sources import find_runs
    from orchestrate.output_place import check_own_run, run_around

    if run_around(target) is not None:
        check_own_run(target, [run.rollouts for run in find_runs(inputs)])

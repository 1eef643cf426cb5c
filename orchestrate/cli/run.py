"""``gym eval run``: one benchmark on this machine, with a live line while it runs and its score with coverage at the end."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from orchestrate.cli.parser import VERIFIER_WORDS, CommandParser, with_flag

if TYPE_CHECKING:
    from collector.settings import RunSettings
    from collector.state.coverage import Coverage
    from orchestrate.collection import PreparedRun

#: Flag to the key it sets. Defaults live in the settings: a flag that is not given sets nothing.
_KEYS: Final = {
    "input": "input_jsonl_fpath",
    "output": "output_jsonl_fpath",
    "model": "policy_model_name",
    "model_url": "policy_base_url",
    "limit": "limit",
    "num_repeats": "num_repeats",
    "concurrency": "num_samples_in_parallel",
    "prompt_config": "prompt_config",
}
#: Flags of NeMo Gym's command that start servers or that say what needs no saying here.
_ELSEWHERE: Final = {
    **dict.fromkeys(
        ("--benchmark", "--environment", "--resources-server", "--model-type", "--split", "--search-dir"),
        "Servers are not started: start them with NeMo Gym's gym env start, then use --no-serve.",
    ),
    "--disable-aggregation": "Metrics need no servers and are always made.",
    "--health-check-workers": "The health check chooses for itself.",
    "--verbose": "What happens is told in any case.",
    "-v": "What happens is told in any case.",
}
#: The endpoint's key itself as an override; a reference to a variable is none.
_KEY: Final = re.compile(r"\+{0,2}policy_api_key=(?!['\"]?\$\{)")
#: Flag to the key of ``responses_create_params`` that it sets.
_PARAMS: Final = ("temperature", "top_p", "max_output_tokens")


def main(argv: list[str]) -> int:
    """Collect, then print the score. Raises IncompleteError unless everything completed."""
    args = _parser().parse_intermixed_args(argv)
    settings = _settings(args)
    from orchestrate.collection import prepare

    run = prepare(settings, read=[args.config] if args.config else [])
    coverage, stopped = _collect(run)
    if coverage.is_final:
        _aggregate(run)
    if coverage.completed and not stopped:
        from orchestrate.cli.health_note import print_health_note
        from orchestrate.health import choose_health

        print_health_note(run.artifacts, choose_health(run.settings))
    print(run.artifacts.coverage.read_text() if args.json else _as_text(coverage, run), end="")
    from orchestrate.outcome import check_outcome

    check_outcome(coverage, f"{run.artifacts.rollouts}{f' ({stopped})' if stopped else ''}")
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="gym eval run",
        description="Collect one benchmark. Example: gym eval run -i math.jsonl -o out/math.jsonl -m my-model "
        "--model-url http://localhost:8000/v1 --verifier number",
        epilog="Overrides: key=value changes a key of the YAML, +key=value adds one (as in +retry.max_attempts=5).",
        elsewhere=_ELSEWHERE,
    )
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help="a setting without a flag, as key=value or +key=value")
    parser.add_argument("--config", type=Path, help="YAML file with settings; flags win over it")
    parser.add_argument("-i", "--input", help="dataset, one JSON object a line")
    parser.add_argument("-o", "--output", help="result file; its companions lie beside it")
    parser.add_argument("-m", "--model", help="name of the model at the endpoint")
    parser.add_argument("--model-url", help="endpoint, up to and including /v1")
    parser.add_argument("--model-api-key-env", metavar="VARIABLE", help="variable that holds the endpoint's key")
    parser.add_argument("--model-api-key", help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=int, help="only the first so many rows")
    parser.add_argument("--num-repeats", type=int, help="rollouts of each task")
    parser.add_argument("--concurrency", type=int, help="requests in flight at once")
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--top-p", type=float)
    parser.add_argument("--max-output-tokens", type=int)
    parser.add_argument("--prompt-config", help="YAML file with a user and, if wanted, a system template")
    parser.add_argument("--verifier", metavar="TYPE", help=f"how answers are graded: {VERIFIER_WORDS}")
    parser.add_argument("--agent-type", metavar="TYPE", help="how the model is asked: openai_chat, openai_responses, nemo_gym")
    parser.add_argument("--no-serve", action="store_true", help="the running servers of a NeMo Gym run and grade the rows")
    parser.add_argument("-a", "--agent", metavar="NAME", help="with --no-serve: the server that runs every row")
    parser.add_argument(
        "--allow-unsupported-pairing", action="store_true", help="with --no-serve: agents a verifier leaves out"
    )
    parser.add_argument("--interleave-repeats", action="store_true", help="start each task's first repeat before any second")
    parser.add_argument("--health-check-ignore", metavar="A,B", help="checks that the health check leaves out")
    parser.add_argument("--no-health-check", action="store_true", help="leave out the health check after collection")
    parser.add_argument("--resume", action="store_true", help="accepted for NeMo Gym users: runs always resume")
    parser.add_argument("--json", action="store_true", help="print the coverage as JSON")
    return parser


def _settings(args: argparse.Namespace) -> RunSettings:
    from pydantic import SecretStr, ValidationError

    from collector.errors import ConfigError, RequestError
    from collector.settings import RunSettings
    from orchestrate.config.nemo_gym import from_nemo_gym
    from orchestrate.config.problems import problems_of

    _check_no_serve(args)
    if args.model_api_key is not None or any(_KEY.match(word) for word in args.overrides):
        raise RequestError(
            "the key on a command line would show the key to every user of this machine.", "Use --model-api-key-env."
        )
    where: Path | str = args.config or ""
    data = _with_flags(_run_yaml(args.config) if args.config else {}, args)
    composed = _composed(data, args, where)
    if args.model_api_key_env is not None:
        if args.model_api_key_env not in os.environ:
            raise RequestError(f"there is no variable {args.model_api_key_env}.", "Check --model-api-key-env.")
        composed["policy_api_key"] = SecretStr(os.environ[args.model_api_key_env])
    run, problems = from_nemo_gym({key: value for key, value in composed.items() if not key.startswith("_")})
    if problems:
        raise ConfigError("; ".join(problems) + ".", where=where)
    try:
        return RunSettings.model_validate(run)
    except ValidationError as error:
        keys = {**_KEYS, "verifier": "verifier", "agent_type": "agent"}
        raise ConfigError(
            "; ".join(with_flag(problem, keys) for problem in problems_of(error, RunSettings)) + ".", where=where
        ) from error


def _composed(data: dict[str, Any], args: argparse.Namespace, where: Path | str) -> dict[str, Any]:
    from orchestrate.config.yaml_file import is_literal

    # Flags alone need no Hydra, whose import would be a tenth of a short run.
    if not args.config and not args.overrides and is_literal(data):
        return dict(data)
    from orchestrate.config.compose import compose_data

    folder = args.config.absolute().parent if args.config else Path.cwd()
    return compose_data(data, args.overrides, folder=folder, where=where)


def _check_no_serve(args: argparse.Namespace) -> None:
    from collector.errors import RequestError

    if args.no_serve:
        flags = {
            "--model": args.model,
            "--model-url": args.model_url,
            "--verifier": args.verifier,
            "--agent-type": args.agent_type,
        }
        if given := [flag for flag, value in flags.items() if value is not None]:
            what = f"{', '.join(given)}: with --no-serve the running servers have their model and their verifier."
            raise RequestError(what, "Leave it out; gym env start sets them.")
    elif args.agent is not None:
        raise RequestError("--agent names a running server and needs --no-serve.", "How a model is asked is --agent-type.")


def _run_yaml(file: Path) -> dict[str, Any]:
    """The settings in ``file``. Raises RequestError for the YAML of a submission, which has such settings one level down."""
    from collector.errors import RequestError
    from orchestrate.config.yaml_file import read_yaml

    data = read_yaml(file)
    if "driver" in data and "compute" in data:
        what = "this is the YAML of a submission; gym eval run takes the settings of one benchmark."
        raise RequestError(what, f"Use gym eval submit {file}, or a file with one benchmark's run section.", file)
    return data


def _with_flags(data: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """The file's settings with those of the flags over them."""
    given = {key: getattr(args, flag) for flag, key in _KEYS.items() if getattr(args, flag) is not None}
    params = {name: getattr(args, name) for name in _PARAMS if getattr(args, name) is not None}
    merged = {**data, **given}
    for key, is_given in (("interleave_repeats", args.interleave_repeats), ("disable_health_check", args.no_health_check)):
        if is_given:
            merged[key] = True
    if params:
        merged["responses_create_params"] = {**(data.get("responses_create_params") or {}), **params}
    for key, kind in (("verifier", args.verifier), ("agent", "nemo_gym" if args.no_serve else args.agent_type)):
        if kind is not None:
            # Settings of another type of plug-in would be wrong for this one.
            same = isinstance(data.get(key), dict) and data[key].get("type") == kind
            merged[key] = data[key] if same else {"type": kind}
    if args.health_check_ignore is not None:
        merged["health_check_ignored_checks"] = [name for name in args.health_check_ignore.split(",") if name]
    if args.agent is not None:
        merged["agent_name"] = args.agent
    if args.allow_unsupported_pairing:
        merged["allow_unsupported_pairing"] = True
    return merged


def _collect(run: PreparedRun) -> tuple[Coverage, str | None]:
    import sys

    import uvloop

    from orchestrate.collection import collect_here
    from orchestrate.jobs.progress import LineProgress
    from orchestrate.services.served_model import other_model_warning

    if (warning := uvloop.run(other_model_warning(run.settings))) is not None:
        print(f"gym eval run: warning: {warning}", file=sys.stderr)
    progress = LineProgress(sys.stderr)
    result = uvloop.run(collect_here(run, progress))
    progress.end()
    return result.coverage, result.stopped


def _aggregate(run: PreparedRun) -> None:
    from orchestrate.cli.machine_limits import one_thread_for_matrices

    with one_thread_for_matrices():
        from orchestrate.single import publish_metrics

        publish_metrics(run.artifacts, run.settings.retry)


def _as_text(coverage: Coverage, run: PreparedRun) -> str:
    from orchestrate.cli.result_text import result_lines

    artifacts = run.artifacts
    files = [artifacts.rollouts, artifacts.failures, artifacts.coverage, artifacts.aggregate]
    shown = [f"  {path}" for path in files if path.exists() and path.stat().st_size]
    return "\n".join([*result_lines(coverage), *shown]) + "\n"

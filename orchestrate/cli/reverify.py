"""``gym eval reverify``: saved answers graded again, all of them or those whose judge failed; no new answer is asked for."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from orchestrate.cli.parser import VERIFIER_WORDS, CommandParser, with_flag

if TYPE_CHECKING:
    from collector.artifacts import RunArtifacts
    from collector.reverify.settings import ReverifySettings
    from collector.settings import RunSettings
    from collector.state.coverage import Coverage
    from collector.stop import StopReason

#: Flag to the key it sets. Defaults live in the settings: a flag that is not given sets nothing.
_KEYS: Final = {
    "rollouts": "rollouts_jsonl_fpath",
    "inputs": "materialized_inputs_jsonl_fpath",
    "output": "output_jsonl_fpath",
    "concurrency": "num_samples_in_parallel",
    "limit": "limit",
}
#: Flags of NeMo Gym's command that have no counterpart, and what says the same here.
_ELSEWHERE: Final = {
    "--input-format": "Rollouts files are graded; trajectories (atif) hold no answers in their whole form.",
    "--atif-manifest": "Rollouts files are graded; trajectories (atif) hold no answers in their whole form.",
    "--benchmark": "Servers are not started here: start them, then --verifier gym_server.",
    "--environment": "Servers are not started here: start them, then --verifier gym_server.",
    "--resources-server": "Start the servers, then --verifier gym_server +verifier.resources_server=NAME.",
    "--model-type": "No model is asked. A judge is a verifier: --verifier judge +verifier.model=NAME.",
}
_SWITCHES: Final = (
    "judge_failed_only",
    "append",
    "resume",
    "overwrite",
    "force",
    "disable_aggregation",
    "allow_partial",
)


def main(argv: list[str]) -> int:
    """Grade, then print the score. Raises IncompleteError unless everything has a verdict."""
    args = _parser().parse_intermixed_args(argv)
    wanted = _settings(args)
    from orchestrate.outcome import check_outcome

    _check_files(wanted, args.config)
    coverage, stopped, where = _append(wanted) if wanted.append else _regrade(wanted)
    print(_as_json(coverage) if args.json else _as_text(coverage), end="")
    check_outcome(coverage, f"{where}{f' ({stopped})' if stopped else ''}")
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="gym eval reverify",
        description="Grade saved answers again; no model is asked for a new one. Example: gym eval reverify "
        "--rollouts out/math.jsonl -o out/math-strict.jsonl --verifier number",
        elsewhere=_ELSEWHERE,
        epilog="Overrides: +key=value adds a setting, as in +verifier.base_url=http://localhost:9000/v1.",
    )
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help="a setting without a flag, as +key=value")
    parser.add_argument("--config", type=Path, help="YAML file with settings; flags win over it")
    parser.add_argument("--rollouts", metavar="PATH", help="rollouts file, or directory of a run, a benchmark or a shard")
    parser.add_argument("--inputs", metavar="FILE", help="materialized inputs of files without a manifest")
    parser.add_argument("-o", "--output", help="rollouts file of the new run; its companions lie beside it")
    parser.add_argument(
        "--verifier", metavar="TYPE", help=f"how answers are graded: {VERIFIER_WORDS}, gym_server; default: as the run was"
    )
    parser.add_argument("--concurrency", type=int, help="gradings in flight at once")
    parser.add_argument("--limit", type=int, help="only so many answers, the first ones")
    parser.add_argument("--judge-failed-only", action="store_true", help="only answers whose judge failed")
    parser.add_argument("--append", action="store_true", help="record into the run itself (with --judge-failed-only)")
    parser.add_argument("--resume", action="store_true", help="go on with an output that is not finished")
    parser.add_argument("--overwrite", action="store_true", help="replace an output that an earlier regrading made")
    parser.add_argument("--force", action="store_true", help="grade though a Gym server may keep state: unsafe_ in the name")
    parser.add_argument("--allow-partial", action="store_true", help="accept that shards of the run are missing")
    parser.add_argument("--disable-aggregation", action="store_true", help="leave out the metrics")
    parser.add_argument("--json", action="store_true", help="print the coverage as JSON")
    return parser


def _settings(args: argparse.Namespace) -> ReverifySettings:
    from pydantic import ValidationError

    from collector.errors import ConfigError
    from collector.reverify.settings import ReverifySettings
    from orchestrate.config.compose import compose_data
    from orchestrate.config.problems import problems_of
    from orchestrate.config.yaml_file import read_yaml

    where: Path | str = args.config or ""
    data: dict[str, Any] = read_yaml(args.config) if args.config else {}
    data |= {key: getattr(args, flag) for flag, key in _KEYS.items() if getattr(args, flag) is not None}
    data |= {name: True for name in _SWITCHES if getattr(args, name)}
    if args.verifier is not None:
        # Settings of another type of verifier would be wrong for this one.
        same = (data.get("verifier") or {}).get("type") == args.verifier
        data["verifier"] = data["verifier"] if same else {"type": args.verifier}
    folder = args.config.absolute().parent if args.config else Path.cwd()
    composed = compose_data(data, args.overrides, folder=folder, where=where)
    try:
        return ReverifySettings.model_validate({key: value for key, value in composed.items() if not key.startswith("_")})
    except ValidationError as error:
        # Problems between keys are told of the whole, and name their keys.
        problems = [with_flag(problem.removeprefix("the file: "), _KEYS) for problem in problems_of(error, ReverifySettings)]
        raise ConfigError("; ".join(problems) + ".", where=where) from error


def _check_files(wanted: ReverifySettings, config: Path | None) -> None:
    from collector.artifacts import RunArtifacts
    from collector.errors import NotFoundError
    from orchestrate.output_place import check_no_input, check_outside_runs, check_place

    inputs = wanted.materialized_inputs_jsonl_fpath
    if inputs is not None and not inputs.exists():
        raise NotFoundError("there is no such file.", "Check --inputs.", inputs)
    if wanted.output_jsonl_fpath is not None:
        check_place(wanted.output_jsonl_fpath)
        if not wanted.append:
            check_outside_runs(wanted.output_jsonl_fpath)
            check_no_input(RunArtifacts(wanted.output_jsonl_fpath), filter(None, (inputs, config)))


def _regrade(wanted: ReverifySettings) -> tuple[Coverage, StopReason | None, Path]:
    import uvloop

    from collector.artifacts import RunArtifacts
    from orchestrate.jobs.progress import LineProgress
    from orchestrate.regrading import find_source, regrade_here

    progress = LineProgress(sys.stderr)
    result, run = uvloop.run(regrade_here(wanted, find_source(wanted), warn=_warn, progress=progress))
    progress.end()
    artifacts = RunArtifacts(run.output_jsonl_fpath)
    if result.coverage.is_final:
        _report(artifacts, run, aggregates=not wanted.disable_aggregation)
    return result.coverage, result.stopped, artifacts.rollouts


def _append(wanted: ReverifySettings) -> tuple[Coverage, StopReason | None, Path]:
    import uvloop

    from orchestrate.jobs.progress import LineProgress
    from orchestrate.regrading import append_here, find_source, renew_merged, settings_for

    source = find_source(wanted)
    shown = [LineProgress(sys.stderr)]
    coverage, stopped = uvloop.run(append_here(wanted, source, warn=_warn, begun=lambda: shown[0]))
    shown[0].end()
    first = source.runs[0]
    if source.manifests and source.manifests[0].shard is not None:
        print(renew_merged(wanted, source), file=sys.stderr)
    elif coverage.is_final:
        _report(first, settings_for(wanted, source, first.rollouts), aggregates=not wanted.disable_aggregation)
    return coverage, stopped, wanted.rollouts_jsonl_fpath


def _report(artifacts: RunArtifacts, run: RunSettings, *, aggregates: bool) -> None:
    """Metrics and health beside the rows, as ``gym eval run`` leaves them."""
    from orchestrate.cli.health_note import print_health_note
    from orchestrate.cli.machine_limits import one_thread_for_matrices
    from orchestrate.health import choose_health

    if aggregates:
        with one_thread_for_matrices():
            from orchestrate.single import publish_metrics

            publish_metrics(artifacts, run.retry)
    print_health_note(artifacts, choose_health(run))


def _warn(line: str) -> None:
    print(f"warning: {line}", file=sys.stderr)


def _as_json(coverage: Coverage) -> str:
    return coverage.encode().decode()


def _as_text(coverage: Coverage) -> str:
    from orchestrate.cli.result_text import result_lines

    return "\n".join(result_lines(coverage)) + "\n"

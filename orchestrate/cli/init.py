"""``gym eval init``: a first submit YAML after a few questions, or from flags alone."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrate.cli.parser import VERIFIER_WORDS, CommandParser
from orchestrate.cli.questions import answer, ask

if TYPE_CHECKING:
    from orchestrate.config.load import Loaded
    from orchestrate.operate.starter import Answers

#: Of a job, unless given.
_WALLTIME = "4:00:00"


def main(argv: list[str]) -> int:
    """Write the file, say what was chosen unasked and what comes next, and return 0.

    Raises RefusedError for a file that exists, ConfigError for answers that make no valid configuration.
    """
    parser = _parser()
    args = parser.parse_args(argv)
    from collector import durable
    from collector.errors import RefusedError
    from orchestrate.cli.submit_notes import tell_notes
    from orchestrate.operate.starter import check_replaced_yaml, starter_yaml

    file: Path = args.file
    exists_already = RefusedError("it exists already.", "Choose another name, or --force to replace it.", file)
    if file.exists() or file.is_symlink():
        if not args.force:
            raise exists_already
        check_replaced_yaml(file)
    answers = _answers(parser, args)
    if file.exists() and answers.dataset.exists() and file.samefile(answers.dataset):
        raise RefusedError("it is the dataset.", "Choose another name for the YAML.", file)
    text = starter_yaml(answers)
    loaded = _check(text, file)
    durable.make_dir(file.absolute().parent)
    try:
        (durable.publish_lines if args.force else durable.publish_new)(file, [text.encode()])
    except FileExistsError:
        # By somebody else, while the questions were answered.
        raise exists_already from None
    print(f"{file} is written.")
    if loaded is not None:
        tell_notes(loaded.config, {}, command="init")
    for note in _unasked(args, answers):
        print(note)
    print(f"See what it does: gym eval submit {file} --dry-run\nDo it:            gym eval submit {file}")
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="gym eval init",
        description="Write a first YAML file. Example: gym eval init eval.yaml --input math.jsonl --model step-4000 "
        "--model-url http://gpu7:8000/v1 --verifier number",
        epilog="On a terminal what is missing is asked for.",
    )
    parser.add_argument("file", nargs="?", type=Path, default=Path("eval.yaml"), metavar="FILE", help="the file (eval.yaml)")
    parser.add_argument("--input", type=Path, metavar="JSONL", help="the dataset")
    parser.add_argument("--model", metavar="NAME", help="the name under which the model is served")
    parser.add_argument("--model-url", metavar="URL", help="a server that runs already: its OpenAI-compatible URL")
    parser.add_argument(
        "--command", metavar="LINE", help="a shell line that starts the server; {port} is filled in by each job"
    )
    parser.add_argument("--api-key-env", metavar="VARIABLE", help="the variable that holds the server's key")
    parser.add_argument("--verifier", metavar="TYPE", help=f"who grades: {VERIFIER_WORDS}; default: exact_match")
    parser.add_argument("--prompt", metavar="TEXT", help="the prompt, with fields of a row in braces")
    parser.add_argument("--benchmark", metavar="NAME", help="what to call it; default: the dataset's name")
    parser.add_argument("--repeats", type=int, default=1, metavar="N", help="answers to each task (1)")
    parser.add_argument("--shards", type=int, default=1, metavar="N", help="jobs (1)")
    parser.add_argument(
        "--compute",
        choices=("local", "slurm"),
        help="run on this machine or on a Slurm cluster; default: slurm where sbatch is found",
    )
    parser.add_argument("--partition", metavar="NAME")
    parser.add_argument("--account", metavar="NAME")
    parser.add_argument("--walltime", metavar="TIME", help=f"of one job ({_WALLTIME})")
    parser.add_argument("--gpus", type=int, metavar="N", help="GPUs of a job")
    parser.add_argument("--hostname", metavar="HOST", help="the cluster's login node, when this machine reaches it by ssh")
    parser.add_argument("--output", default="runs", metavar="DIR", help="where run directories are made (runs)")
    parser.add_argument("--force", action="store_true", help="replace FILE")
    return parser


def _answers(parser: CommandParser, args: argparse.Namespace) -> Answers:
    """What flags say and a terminal is asked; each answer is checked before the next question."""
    from orchestrate.operate.starter import Answers

    is_here = not args.hostname
    dataset = Path(answer(parser, "Dataset (a JSONL file)", "--input", args.input, check=_check_rows if is_here else None))
    prompt = args.prompt or (_prompt(parser, dataset) if is_here else None)
    if is_here:
        _check_shards(args.shards, args.repeats, dataset)
    model = answer(parser, "Name under which the model is served", "--model", args.model)
    if args.model_url is not None and args.command is not None:
        parser.error("--model-url and --command exclude each other")
    url, command = args.model_url, args.command
    if url is None and command is None:
        if not sys.stdin.isatty():
            parser.error("--model-url is missing, or --command")
        question = "URL of its server, or empty when the job starts one"
        url = ask(parser, question, "--model-url", default="", check=_check_url_or_none) or None
        command = None if url else ask(parser, "Command that starts it, with {port}", "--command")
    elif url is not None:
        _check_url_or_none(url)
    if command is not None and args.api_key_env is not None:
        parser.error(
            "--api-key-env is for a server at --model-url; one that the job starts by --command is asked without a key"
        )
    verifier = answer(parser, "Verifier", "--verifier", args.verifier, default="exact_match", check=_check_verifier)
    on_slurm = _compute(parser, args) == "slurm"
    of_slurm = {"partition": args.partition, "account": args.account, "walltime": args.walltime, "gpus": args.gpus}
    if not on_slurm and (given := [f"--{flag}" for flag, value in of_slurm.items() if value is not None]):
        parser.error(f"{', '.join(given)}: on this machine there are no such settings; --compute slurm has them")
    return Answers(
        dataset=dataset,
        model=model,
        model_url=url,
        command=command,
        api_key_env=args.api_key_env,
        verifier=verifier,
        prompt=prompt,
        benchmark=args.benchmark,
        repeats=args.repeats,
        shards=args.shards,
        on_slurm=on_slurm,
        partition=args.partition,
        account=args.account,
        walltime=args.walltime or _WALLTIME,
        gpus=args.gpus,
        hostname=args.hostname,
        output=args.output,
    )


def _compute(parser: CommandParser, args: argparse.Namespace) -> str:
    if args.hostname and args.compute == "local":
        parser.error("--hostname names a cluster's login node, and --compute local excludes it")
    default = "slurm" if args.hostname or shutil.which("sbatch") is not None else "local"
    given = "slurm" if args.hostname else args.compute
    return answer(parser, "Where jobs run: local or slurm", "--compute", given, default=default, check=_check_compute)


def _prompt(parser: CommandParser, dataset: Path) -> str | None:
    """The prompt for rows that carry none; None for rows that do."""
    from orchestrate.operate.starter import first_row, has_requests, usual_field

    row = first_row(dataset)
    if has_requests(row):
        return None
    field = usual_field(row)
    question = f"Prompt, with fields of a row in braces (a row has: {', '.join(row)})"
    return ask(parser, question, "--prompt", default=f"{{{field}}}" if field else None)


def _unasked(args: argparse.Namespace, answers: Answers) -> Iterator[str]:
    """What was decided without being asked, with the flag that decides otherwise."""
    if sys.stdin.isatty():
        return
    if args.compute is None and not args.hostname:
        why = "since sbatch is found here" if answers.on_slurm else "since there is no sbatch here"
        other = "--compute local runs it on this machine" if answers.on_slurm else "--compute slurm for a cluster"
        yield f"compute: {'slurm' if answers.on_slurm else 'local'}, {why}; {other}."
    if args.prompt is None and answers.prompt is not None:
        yield f"prompt:  {answers.prompt}, since the rows have no responses_create_params; --prompt for another."
    if args.verifier is None:
        yield f"grading: {answers.verifier}; --verifier for another."


def _check_rows(text: str) -> None:
    from orchestrate.operate.starter import first_row

    first_row(Path(text))


def _check_shards(shards: int, repeats: int, dataset: Path) -> None:
    from collector.errors import ConfigError
    from collector.text.counted import counted
    from orchestrate.operate.starter import count_rows

    for flag, count in (("--shards", shards), ("--repeats", repeats)):
        if count < 1:
            raise ConfigError(f"must be at least 1, not {count}.", where=flag)
    # Each shard has at least one rollout.
    if shards > 1 and shards > (rollouts := count_rows(dataset) * repeats):
        raise ConfigError(f"{counted(shards, 'shard')} for {counted(rollouts, 'rollout')}.", "Ask for fewer.", "--shards")


def _check_url_or_none(text: str) -> None:
    from collector.errors import ConfigError
    from orchestrate.config.services import check_url

    try:
        if text:
            check_url(text)
    except ValueError as error:
        raise ConfigError(f"{error}.", where="--model-url") from error


def _check_verifier(text: str) -> None:
    from collector.verifiers.base import VERIFIERS

    VERIFIERS.load(text)


def _check_compute(text: str) -> None:
    from collector.errors import RequestError

    if text not in {"local", "slurm"}:
        raise RequestError(f"{text!r} is neither local nor slurm.")


def _check(text: str, file: Path) -> Loaded | None:
    """Everything that submitting would check before it creates anything, dataset included.

    None where only the login node can tell what a submission there will find.
    """
    import yaml

    from orchestrate.config.compose import compose_data
    from orchestrate.config.load import load_config
    from orchestrate.remote.forward import node_of
    from orchestrate.submission.checks import check_loaded
    from orchestrate.submission.submit import gather

    folder = file.absolute().parent if file.absolute().parent.is_dir() else Path.cwd()
    data = compose_data(yaml.safe_load(text), [], folder=folder, where=file)
    loaded = load_config(data, where=file, environ=os.environ)
    if node_of(data) is not None:
        return None
    check_loaded(loaded, where=file)
    gather(loaded)
    return loaded

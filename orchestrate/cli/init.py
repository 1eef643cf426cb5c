"""``gym eval init``: a first submit YAML after a few questions, or from flags alone."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrate.cli.parser import CommandParser

if TYPE_CHECKING:
    from orchestrate.operate.starter import Answers


def main(argv: list[str]) -> int:
    """Write the file, say what comes next, and return 0.

    Raises RefusedError for a file that exists, ConfigError for answers that make no valid configuration.
    """
    parser = _parser()
    args = parser.parse_args(argv)
    from collector import durable
    from collector.errors import RefusedError
    from orchestrate.operate.starter import starter_yaml

    file: Path = args.file
    if file.exists() and not args.force:
        raise RefusedError("it exists already.", "Choose another name, or --force to replace it.", file)
    answers = _answers(parser, args)
    text = starter_yaml(answers)
    _check(text, file)
    durable.make_dir(file.absolute().parent)
    durable.publish(file, text.encode())
    print(f"{file} is written.\nSee what it does: gym eval submit {file} --dry-run\nDo it:            gym eval submit {file}")
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
    parser.add_argument("--verifier", metavar="TYPE", help="who grades (exact_match)")
    parser.add_argument("--prompt", metavar="TEXT", help="the prompt, with fields of a row in braces")
    parser.add_argument("--benchmark", metavar="NAME", help="what to call it; default: the dataset's name")
    parser.add_argument("--repeats", type=int, default=1, metavar="N", help="answers to each task (1)")
    parser.add_argument("--shards", type=int, default=1, metavar="N", help="jobs (1)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--local", action="store_true", help="run on this machine")
    where.add_argument("--slurm", action="store_true", help="run on a Slurm cluster; default where sbatch is found")
    parser.add_argument("--partition", metavar="NAME")
    parser.add_argument("--account", metavar="NAME")
    parser.add_argument("--walltime", default="4:00:00", metavar="TIME", help="of one job (4:00:00)")
    parser.add_argument("--gpus", type=int, metavar="N", help="GPUs of a job")
    parser.add_argument("--hostname", metavar="HOST", help="the cluster's login node, when this machine reaches it by ssh")
    parser.add_argument("--output", default="runs", metavar="DIR", help="where run directories are made (runs)")
    parser.add_argument("--force", action="store_true", help="replace FILE")
    return parser


def _answers(parser: CommandParser, args: argparse.Namespace) -> Answers:
    from orchestrate.operate.starter import Answers, prompt_field

    dataset = args.input or Path(_ask(parser, "Dataset (a JSONL file)", "--input"))
    model = args.model or _ask(parser, "Name under which the model is served", "--model")
    url, command = args.model_url, args.command
    if url is None and command is None:
        url = _ask(parser, "URL of its server, or empty when the job starts one", "--model-url", default="") or None
        command = None if url else _ask(parser, "Command that starts it, with {port}", "--command")
    if url is not None and command is not None:
        parser.error("--model-url and --command exclude each other")
    field = prompt_field(dataset) if args.prompt is None and not args.hostname else None
    return Answers(
        dataset=dataset,
        model=model,
        model_url=url,
        command=command,
        api_key_env=args.api_key_env,
        verifier=args.verifier or _ask(parser, "Verifier", "--verifier", default="exact_match"),
        prompt=args.prompt or (f"{{{field}}}" if field else None),
        benchmark=args.benchmark,
        repeats=args.repeats,
        shards=args.shards,
        on_slurm=not args.local and (args.slurm or bool(args.hostname) or shutil.which("sbatch") is not None),
        partition=args.partition,
        account=args.account,
        walltime=args.walltime,
        gpus=args.gpus,
        hostname=args.hostname,
        output=args.output,
    )


def _ask(parser: CommandParser, question: str, flag: str, *, default: str | None = None) -> str:
    """The answer to a question, on a terminal; elsewhere the default, or a message that names the flag."""
    if not sys.stdin.isatty():
        if default is None or flag == "--model-url":
            parser.error(f"{flag} is missing" + (", or --command" if flag == "--model-url" else ""))
        return default
    shown = f" [{default}]" if default else ""
    while True:
        answer = input(f"{question}{shown}: ").strip() or default
        if answer is not None:
            return answer


def _check(text: str, file: Path) -> None:
    """Everything that submitting would check before it creates anything, dataset included."""
    import yaml

    from orchestrate.checks import check_loaded
    from orchestrate.compose import compose_data
    from orchestrate.config.load import load_config
    from orchestrate.remote import node_of
    from orchestrate.submit import gather

    folder = file.absolute().parent if file.absolute().parent.is_dir() else Path.cwd()
    data = compose_data(yaml.safe_load(text), [], folder=folder, where=file)
    loaded = load_config(data, where=file, environ=os.environ)
    if node_of(data) is None:
        check_loaded(loaded, where=file)
        gather(loaded)

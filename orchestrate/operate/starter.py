"""A first submit YAML from a few answers: small, commented, and valid as it stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from collector import durable, jsonl
from collector.errors import ConfigError, GymEvalError, NotFoundError, RefusedError
from orchestrate.config.yaml_file import read_yaml

_OTHER_NAME: Final = "Choose another name, or remove it first; nothing was changed."
#: What is called like this may hold a mistake, and is to be replaced for that.
_OF_YAML: Final = frozenset({".yaml", ".yml"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What the YAML is made from. Exactly one of ``model_url`` and ``command`` says how the model is reached."""

    dataset: Path
    model: str
    model_url: str | None = None
    #: A shell line that starts the server; ``{port}`` is filled in by each job.
    command: str | None = None
    verifier: str = "exact_match"
    prompt: str | None = None
    api_key_env: str | None = None
    benchmark: str | None = None
    repeats: int = 1
    shards: int = 1
    #: On this machine without; what follows is Slurm's.
    on_slurm: bool = False
    partition: str | None = None
    account: str | None = None
    walltime: str = "4:00:00"
    gpus: int | None = None
    hostname: str | None = None
    output: str = "runs"


def starter_yaml(answers: Answers) -> str:
    """The file's text."""
    sections = [
        ("How the model is reached.", {"services": {"model": _service(answers)}}),
        ("Where the jobs run.", {"compute": {"cluster" if answers.on_slurm else "here": _compute(answers)}}),
        ("What is measured: shards are jobs, repeats are answers to each task.", {"driver": _driver(answers)}),
        ("Where the run directory is made.", {"job": {"output_path": answers.output}}),
    ]
    head = "# Written by gym eval init. See what it would do: gym eval submit THIS --dry-run\n"
    return head + "".join(f"\n# {words}\n{_dump(data)}" for words, data in sections)


def first_row(dataset: Path) -> dict[str, Any]:
    """The dataset's first row. Raises NotFoundError without the file, ConfigError when it begins with no JSON object."""
    line = next((line for _, line in _lines_of(dataset)), b"")
    try:
        row = jsonl.loads(line)
    except ValueError as error:
        raise ConfigError(f"the first line is not JSON ({error}).", "A row is one JSON object on one line.", dataset) from error
    if not isinstance(row, dict):
        raise ConfigError("the first line is no JSON object.", "A row is one JSON object on one line.", dataset)
    return row


def check_replaced_yaml(file: Path) -> None:
    """Raise RefusedError unless ``file``, which is there, may be replaced by a YAML: rows, notes and devices are a slip."""
    place = durable.real_path(file)
    if not place.is_file():
        what = "is a link that leads to no file" if file.is_symlink() else "is no regular file"
        raise RefusedError(f"it {what}, and is to be replaced.", _OTHER_NAME, file)
    if place.suffix not in _OF_YAML and place.stat().st_size and not _is_submission(place):
        shown = f"a link to {place}, which" if file.is_symlink() else "a file that"
        raise RefusedError(f"it is {shown} holds no YAML of a submission.", _OTHER_NAME, file)


def _is_submission(path: Path) -> bool:
    try:
        return not {"driver", "compute"}.isdisjoint(read_yaml(path))
    except GymEvalError:
        return False


def count_rows(dataset: Path) -> int:
    """How many rows the dataset has; blank lines are none. Raises NotFoundError when it cannot be read."""
    return sum(1 for _ in _lines_of(dataset))


def _lines_of(dataset: Path) -> Iterator[tuple[int, bytes]]:
    if dataset.exists() and not dataset.is_file() and not dataset.is_dir():
        # To open a pipe is to wait for its other end, and a device may have no end.
        raise ConfigError("it is no regular file, and it is read more than once.", "Name a JSONL file.", dataset)
    try:
        yield from jsonl.read_lines(dataset)
    except PermissionError as error:
        raise RefusedError(f"cannot be read: {error.strerror}.", "Ask its owner, or name another file.", dataset) from error
    except OSError as error:
        raise NotFoundError(f"cannot be read: {error.strerror}.", "Name a JSONL file.", dataset) from error


def has_requests(row: Mapping[str, Any]) -> bool:
    """Whether the row carries its own request, so that it needs no prompt."""
    return "responses_create_params" in row


def usual_field(row: Mapping[str, Any]) -> str | None:
    """The field that a prompt would use: the first of the usual names that the row has."""
    return next((name for name in ("question", "problem", "prompt", "instruction", "input") if name in row), None)


def _service(answers: Answers) -> dict[str, object]:
    if answers.command is not None:
        return {"type": "command", "command": answers.command, "served_model_name": answers.model}
    key = {"api_key_env": answers.api_key_env} if answers.api_key_env else {}
    return {"type": "external", "url": answers.model_url, "served_model_name": answers.model, **key}


def _compute(answers: Answers) -> dict[str, object]:
    if not answers.on_slurm:
        return {"type": "local", "max_concurrent": min(answers.shards, 4)}
    optional = {
        "hostname": answers.hostname,
        "account": answers.account,
        "partition": answers.partition,
        "walltime": answers.walltime,
        "gpus_per_node": answers.gpus,
    }
    return {"type": "slurm", **{key: value for key, value in optional.items() if value is not None}}


def _driver(answers: Answers) -> dict[str, object]:
    run: dict[str, object] = {"input_jsonl_fpath": str(answers.dataset)}
    if answers.prompt is not None:
        run["prompt_config"] = {"user": answers.prompt}
    run |= {"verifier": {"type": answers.verifier}, "num_repeats": answers.repeats}
    benchmark: dict[str, object] = {"shards": answers.shards, "run": run}
    return {"policy_model": "model", "benchmarks": {answers.benchmark or answers.dataset.stem: benchmark}}


def _dump(data: object) -> str:
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


class _Dumper(yaml.SafeDumper):
    """Quotes what YAML 1.1 would read as a number in base sixty: a walltime is text."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    is_plain = value.replace("_", "").replace("-", "").replace("/", "").replace(".", "").isalnum()
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if is_plain else '"')


_Dumper.add_representer(str, _text)

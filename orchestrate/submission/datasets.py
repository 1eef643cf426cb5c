"""Datasets that a configuration knows how to make: made once, by the submit command, before anything is read or planned."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from collector import durable, supervise
from collector.agents.base import AGENTS
from collector.errors import ConfigError, RefusedError, kind_of
from collector.settings import RunSettings
from collector.shard.lock_backends import FlockHold
from orchestrate.config.load import Loaded
from orchestrate.config.submit import SubmitConfig
from orchestrate.config.values import EnvSource, parse_env, resolve_env

#: Seconds between SIGTERM and SIGKILL for a command whose submission was stopped.
_GRACE_S: Final = "10"
#: Of the process: in a notebook, what Python calls standard error is no file.
_STDERR: Final = 2


@dataclass(frozen=True, slots=True)
class Missing:
    """A dataset that is not there, and what makes it."""

    benchmark: str
    dataset: Path
    command: str | list[str]

    @property
    def in_words(self) -> str:
        """One line for people."""
        shown = self.command if isinstance(self.command, str) else " ".join(self.command)
        return f"driver.benchmarks.{self.benchmark}: {self.dataset} is missing; it would be made by: {shown}"


def prepare_commands(config: SubmitConfig) -> dict[str, str | list[str]]:
    """The benchmarks that say how their dataset is made, and how."""
    prepared = {name: benchmark.prepare for name, benchmark in config.driver.benchmarks.items()}
    return {name: prepare.command for name, prepare in prepared.items() if prepare is not None}


def missing_datasets(loaded: Loaded) -> list[Missing]:
    """What ``prepare_datasets`` would make now, each dataset once; also one whose command was killed in the middle."""
    found: dict[Path, Missing] = {}
    for name, command in prepare_commands(loaded.config).items():
        dataset = _dataset_of(loaded.runs[name])
        if not _is_there(dataset):
            found.setdefault(dataset, Missing(name, dataset, command))
    return list(found.values())


def prepare_datasets(loaded: Loaded, environ: Mapping[str, str] = os.environ) -> None:
    """Run the command of each dataset that is missing, here, with ``driver.env``; what it writes goes to standard error.

    Raises ConfigError when it fails or leaves no file, RefusedError while another submission makes the same one. A dataset
    that is there stays as it is.
    """
    for missing in missing_datasets(loaded):
        _make(missing, {**environ, **_driver_env(loaded.config, environ)})


def _make(missing: Missing, environ: Mapping[str, str]) -> None:
    try:
        with _directory_of(missing.dataset), _alone_with(missing.dataset):
            if not _is_there(missing.dataset):
                _run(missing, environ)
    except OSError as error:
        raise kind_of(error)(f"the dataset cannot be made: {error.strerror}.", "Mend that.", missing.dataset) from error


@contextmanager
def _directory_of(dataset: Path) -> Generator[None]:
    """It is there inside, and gone again behind it when nothing was put into it."""
    made = [folder for folder in dataset.parents if not folder.exists()]
    durable.make_dir(dataset.parent)
    try:
        yield
    finally:
        with suppress(OSError):
            for folder in made:
                folder.rmdir()


@contextmanager
def _alone_with(dataset: Path) -> Generator[None]:
    path = dataset.with_name(f".{dataset.name}.lock")
    hold = FlockHold(path)
    if not hold.acquire():
        raise RefusedError("another submission makes this dataset.", "Wait for it.", dataset)
    try:
        if not hold.is_ours():
            raise RefusedError("another submission made this dataset just now.", "Submit again.", dataset)
        try:
            yield
        finally:
            durable.remove(path)
    finally:
        hold.release()


def _run(missing: Missing, environ: Mapping[str, str]) -> None:
    """The mark lies there until the command has ended: what one that was killed left is no dataset."""
    sys.stderr.write(f"gym eval submit: {missing.in_words.replace('it would be', 'it is now')}\n")
    sys.stderr.flush()
    mark = _mark(missing.dataset)
    mark.touch()
    command = ["bash", "-c", missing.command] if isinstance(missing.command, str) else missing.command
    # The end of the command is bound to ours, however we end.
    supervised = [sys.executable, "-I", supervise.__file__, _GRACE_S, *command]
    with subprocess.Popen(
        supervised, stdin=subprocess.PIPE, stdout=_STDERR, env=dict(environ), start_new_session=True
    ) as process:
        code = process.wait()
    left = _set_aside(missing.dataset) if code and missing.dataset.is_file() else ""
    mark.unlink()
    if code or not missing.dataset.is_file():
        what = f"ended with exit code {code}{left}" if code else f"ended well and left no file {missing.dataset}"
        where = f"driver.benchmarks.{missing.benchmark}.prepare"
        raise ConfigError(f"the command {what}.", "What it said stands above.", where)


def _dataset_of(settings: RunSettings) -> Path:
    """Where it lies, or is to be made."""
    maker = AGENTS.load(settings.agent["type"]).row_maker(settings)
    return settings.input_jsonl_fpath if maker is None else maker.source(settings.input_jsonl_fpath)


def _set_aside(dataset: Path) -> str:
    aside = dataset.with_name(f"{dataset.name}.incomplete")
    dataset.replace(aside)
    return f", and what it left of the dataset is {aside}"


def _is_there(dataset: Path) -> bool:
    return dataset.exists() and not _mark(dataset).exists()


def _mark(dataset: Path) -> Path:
    return dataset.with_name(f".{dataset.name}.preparing")


def _driver_env(config: SubmitConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables as jobs get them, but for those of compute nodes that this machine has not."""
    entries = {
        name: value
        for name, value in config.driver.env.items()
        if (reference := parse_env(value)).source is not EnvSource.RUNTIME or reference.text in environ
    }
    return resolve_env(entries, environ, where="driver.env")

"""Everything that a submission can know to fail later, looked for before anything is created, and told in one message."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from collector.agents.base import AGENTS
from collector.agents.endpoint import EndpointSettings, keys_in
from collector.artifacts import RunArtifacts
from collector.errors import ConfigError
from collector.preparation.prepare import make_agent, make_verifier
from collector.settings import RunSettings
from exporters.registry import make_exporter
from orchestrate.config.load import Loaded
from orchestrate.config.submit import SubmitConfig
from orchestrate.config.values import EnvMap, EnvSource, resolve_env
from orchestrate.names import slug
from orchestrate.submission.export_settings import known_environ


def check_loaded(loaded: Loaded, *, where: Path) -> None:
    """Raise ConfigError with every problem of agents, verifiers, endpoints and exports."""
    problems: list[str] = []
    for name, settings in loaded.runs.items():
        prefix = f"driver.benchmarks.{name}.run"
        problems += [f"{prefix}.{problem}" for problem in run_problems(settings)]
    problems += _export_problems(loaded.config)
    problems += _missing_variables(loaded.config)
    if problems:
        raise ConfigError("; ".join(dict.fromkeys(problems)) + ".", where=where)


def run_problems(settings: RunSettings) -> Iterator[str]:
    """What is wrong with the plug-ins of one benchmark and with the way to its model."""
    yield from _told("agent", lambda: make_agent(settings))
    yield from _told("verifier", lambda: make_verifier(settings))
    yield from _told("policy_base_url", lambda: _check_endpoint(settings))
    yield from _told("verifier", lambda: _check_grading(settings))
    headers: Any = settings.agent.get("headers")
    if isinstance(headers, dict):
        yield from (f"agent.headers.{problem}" for problem in keys_in(headers))


def _check_endpoint(settings: RunSettings) -> None:
    needs_url = issubclass(AGENTS.load(settings.agent["type"]).Settings, EndpointSettings)
    if needs_url and settings.policy_base_url is None:
        raise ConfigError("policy_base_url: is missing: the agent has no model to ask")


def _check_grading(settings: RunSettings) -> None:
    grades, kind = AGENTS.load(settings.agent["type"]).grades, settings.verifier["type"]
    if grades and kind != "environment":
        raise ConfigError(f"verifier: agent {settings.agent['type']} brings its grades: leave {kind!r} out")
    if kind == "environment" and not grades:
        raise ConfigError("verifier: environment is for agents whose servers grade, such as nemo_gym")


def _told(key: str, act: Callable[[], object]) -> Iterator[str]:
    """The problem of ``act``, if it has one, under the key that causes it."""
    try:
        act()
    except ConfigError as error:
        text = str(error).rstrip(".")
        yield text if text.startswith((f"{key}:", f"{key}.")) else f"{key}: {text}"


def _missing_variables(config: SubmitConfig) -> Iterator[str]:
    """Variables that jobs read and that are not set. Only a local job certainly has no others than this command."""
    if config.the_compute.type != "local":
        return
    read: dict[str, EnvMap] = {"driver.env": config.driver.env}
    for name, service in config.services.items():
        if service.type == "external":
            key = service.api_key_env
            read[f"services.{name}.api_key_env"] = {"KEY": f"{EnvSource.RUNTIME}:{key}"} if key else {}
        else:
            read[f"services.{name}.env"] = service.env
    for place, entries in read.items():
        yield from _told(place, partial(resolve_env, entries, os.environ, where=place))


def _export_problems(config: SubmitConfig) -> Iterator[str]:
    taken: dict[tuple[str, str], str] = {}
    environ = known_environ(config, os.environ)
    for benchmark in config.driver.benchmarks:
        for name, values in config.exports_of(benchmark).items():
            artifacts = RunArtifacts(config.job.output_path / slug(benchmark) / "rollouts.jsonl")
            try:
                exporter = make_exporter(name, values, artifacts, environ=environ)
                place = exporter.destination
            except ConfigError as error:
                is_own = name in config.driver.benchmarks[benchmark].export
                key = f"driver.benchmarks.{benchmark}.export.{name}" if is_own else f"export.{name}"
                text = str(error).rstrip(".")
                # Wrong settings are told under the exporter's own name for itself.
                yield text.replace(f"export.{name}", key) if text.startswith(f"export.{name}") else f"{key}: {text}"
                continue
            if (missing := exporter.missing()) is not None:
                yield f"export.{name}: {missing}"
            # Only a local job certainly has no other variables than this command.
            if (problem := exporter.environment_problem(is_whole=config.the_compute.type == "local")) is not None:
                yield f"export.{name}: {problem}"
            if exporter.needs_answers and config.driver.benchmarks[benchmark].command is not None:
                fix = f"write driver.benchmarks.{benchmark}.export: {{{name}: null}}"
                yield f"export.{name}: {benchmark} is a command, which leaves no answers to export: {fix}"
            other = taken.setdefault((name, place), benchmark)
            if other != benchmark:
                yield f"export.{name}: {other} and {benchmark} would both be exported to {place}: give each a place of its own"

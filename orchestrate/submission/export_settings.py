"""Exports as the variables at submission make them: what those decide is the same for every job and every later command."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from collector.artifacts import RunArtifacts
from collector.errors import ConfigError
from collector.text.masked import masked_address
from exporters.base import SwitchedOff
from exporters.registry import load_run_exporter_class, make_exporter
from orchestrate.config.load import Loaded
from orchestrate.config.submit import Benchmark, ExportMap, SubmitConfig
from orchestrate.config.values import EnvSource, parse_env
from orchestrate.names import slug


class SettledExports(NamedTuple):
    """The configuration with the exports that will be made, and why others that it asked for will not be, by name."""

    loaded: Loaded
    left_out: dict[str, str]


def settled_exports(loaded: Loaded, environ: Mapping[str, str]) -> SettledExports:
    """``loaded`` with the settings of exports that variables decide, and without exports that they switch off."""
    config, known = loaded.config, known_environ(loaded.config, environ)
    left_out: dict[str, str] = {}
    benchmarks: dict[str, Benchmark] = {}
    for benchmark, settings in config.driver.benchmarks.items():
        export: ExportMap = dict(settings.export)
        for name, values in config.exports_of(benchmark).items():
            # One that is not there is told with everything else that is wrong.
            with suppress(ConfigError):
                settled = load_run_exporter_class(name).settled(values, known)
                if isinstance(settled, SwitchedOff):
                    left_out[name], export[name] = settled.reason, None
                elif settled != values:
                    export[name] = dict(settled)
        benchmarks[benchmark] = settings.model_copy(update={"export": export})
    driver = config.driver.model_copy(update={"benchmarks": benchmarks})
    return SettledExports(replace(loaded, config=config.model_copy(update={"driver": driver})), left_out)


def export_servers(config: SubmitConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """The servers that exports of a configuration without problems ask, by ``export.NAME``, without logins."""
    known = known_environ(config, environ)
    found: dict[str, str] = {}
    for benchmark in config.driver.benchmarks:
        artifacts = RunArtifacts(config.job.output_path / slug(benchmark) / "rollouts.jsonl")
        for name, values in config.exports_of(benchmark).items():
            if (server := make_exporter(name, values, artifacts, environ=known).server) is not None:
                found[f"export.{name}"] = masked_address(server)
    return found


def known_environ(config: SubmitConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that an export will see, as far as ``environ``, those of this command, tells: no others of the nodes."""
    found = dict(environ)
    for name, value in config.driver.env.items():
        source, text = parse_env(value)
        if source is EnvSource.LIT:
            found[name] = text
        elif (source is EnvSource.HOST or config.the_compute.type == "local") and text in environ:
            found[name] = environ[text]
        else:
            found.pop(name, None)
    return found

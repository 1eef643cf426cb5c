"""From plain data to a valid SubmitConfig and valid run settings, or one ConfigError that lists every problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from collector.errors import ConfigError
from collector.registry import unknown_name_hint
from collector.settings import RunSettings
from orchestrate.config.commands import AGENT as COMMAND
from orchestrate.config.commands import command_run, driver_problems, has_command
from orchestrate.config.gpus import gpu_problems
from orchestrate.config.nemo_submit import from_nemo_submit
from orchestrate.config.pools import limit_problems, pool_problems
from orchestrate.config.problems import problems_of
from orchestrate.config.references import UNKNOWN_PORT_URL, fill_references, reference_problems
from orchestrate.config.service_command import model_name
from orchestrate.config.services import ExternalService, Service
from orchestrate.config.submit import FILLED_IN, POLICY_KEYS, SubmitConfig
from orchestrate.config.values import EnvSource, missing_host_variables, parse_env
from orchestrate.names import name_problems, slug

#: Stands for the output path while a run section is checked; the plan puts each shard's own in its place.
_PLACEHOLDER = Path("rollouts.jsonl")
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Loaded:
    """A valid configuration and, by benchmark, its settings with the policy model filled in."""

    config: SubmitConfig
    runs: dict[str, RunSettings]


def load_config(raw: Mapping[str, Any], *, where: Path, environ: Mapping[str, str]) -> Loaded:
    """Validate the composed YAML. Raises ConfigError with all problems in one line; touches nothing."""
    data, problems = from_nemo_submit({key: value for key, value in raw.items() if not str(key).startswith("_")})
    problems += _structure_problems(data)
    problems += _meaning_problems(data)
    problems += [problem for name, run in _run_sections(data).items() for problem in _run_problems(name, run, data)]
    if not problems:
        config = SubmitConfig.model_validate(data)
        problems = [*_variable_problems(config, environ), *gpu_problems(config), *limit_problems(config.compute)]
        if not problems:
            names = config.driver.benchmarks
            return Loaded(config, {name: settings_of(config, name, output=_PLACEHOLDER) for name in names})
    raise ConfigError("; ".join(dict.fromkeys(problems)) + ".", where=where)


def settings_of(
    config: SubmitConfig,
    name: str,
    *,
    output: Path,
    base_url: str | None = None,
    api_key: str | None = None,
    urls: Mapping[str, str] | None = None,
) -> RunSettings:
    """The settings of one benchmark; ``base_url``, ``api_key`` and ``urls`` say how the job reaches its services."""
    benchmark = config.driver.benchmarks[name]
    given = benchmark.run if benchmark.command is None else command_run(benchmark, config.driver)
    if benchmark.command is None or urls is not None:
        # The text of a command is part of the experiment, and an address that the job chose is not.
        given = fill_references(given, {service: _facts(config, service, urls or {}) for service in config.services})
    run: dict[str, Any] = {**given, "output_jsonl_fpath": output}
    # Jobs that are requeued by design are cut off by design; that must not use up the attempts of a task that never failed.
    run["retry"] = {"max_interruptions": benchmark.requeue.max_interruptions, **(run.get("retry") or {})}
    if config.driver.policy_model is not None:
        service = config.services[config.driver.policy_model]
        run["policy_model_name"] = service.served_model_name if isinstance(service, ExternalService) else model_name(service)
        run["policy_base_url"] = base_url or _policy_url(service)
    if api_key is not None or "policy_api_key" in run:
        run["policy_api_key"] = api_key
    return RunSettings.model_validate(run)


def api_key_reference(config: SubmitConfig, name: str) -> str | None:
    """``host:VAR`` or ``runtime:VAR`` of the key that the benchmark's requests carry; None when they carry none."""
    if config.driver.policy_model is None:
        return config.driver.benchmarks[name].run.get("policy_api_key")
    service = config.services[config.driver.policy_model]
    if service.type == "external" and service.api_key_env is not None:
        return f"{EnvSource.RUNTIME}:{service.api_key_env}"
    return None


def _facts(config: SubmitConfig, name: str, urls: Mapping[str, str]) -> dict[str, str]:
    service = config.services[name]
    model = service.served_model_name if isinstance(service, ExternalService) else model_name(service)
    url = urls.get(name) or _policy_url(service)
    return {"url": url, "model": model, "port": str(urlsplit(url).port or _DEFAULT_PORTS[urlsplit(url).scheme])}


def _policy_url(service: Service) -> str:
    if not isinstance(service, ExternalService):
        # A job that chooses its port puts the real address here; where a model answers is not part of the experiment.
        return f"http://127.0.0.1:{service.port}/v1" if service.port else UNKNOWN_PORT_URL
    return service.url


def _structure_problems(data: Mapping[str, Any]) -> list[str]:
    try:
        SubmitConfig.model_validate(data)
    except ValidationError as error:
        return problems_of(error, SubmitConfig)
    return []


def _meaning_problems(data: Mapping[str, Any]) -> list[str]:
    """Problems between keys, looked for in plain data so that they are reported together with wrong keys."""
    problems: list[str] = []
    compute, services, driver = (_mapping(data, key) for key in ("compute", "services", "driver"))
    if isinstance(data.get("compute"), dict) and len(compute) != 1:
        problems.append(f"compute: needs exactly one entry, not {len(compute)}")
    benchmarks = _mapping(driver, "benchmarks")
    if driver.get("benchmarks") == {}:
        problems.append("driver.benchmarks: is empty: name at least one benchmark")
    problems += name_problems(map(str, benchmarks), prefix="driver.benchmarks")
    policy = driver.get("policy_model")
    if isinstance(policy, str) and policy not in services and isinstance(data.get("services", {}), dict):
        hint = unknown_name_hint(policy, sorted(map(str, services))).rstrip(".")
        problems.append(f"driver.policy_model: no service {policy!r}. {hint}")
    named = services.get(policy) if isinstance(policy, str) else None
    if isinstance(named, dict) and named.get("type") == "command" and named.get("served_model_name") is None:
        problems.append(f"services.{policy}.served_model_name: is missing: driver.policy_model needs a service with a model")
    problems += pool_problems(data)
    problems += driver_problems(driver)
    for benchmark, settings in benchmarks.items():
        if has_command(settings):
            prefix = f"driver.benchmarks.{benchmark}.command"
            problems += reference_problems(settings["command"], sorted(map(str, services)), prefix)
    name = _mapping(data, "job").get("name")
    if isinstance(name, str) and (not name or slug(name) != name):
        problems.append(f"job.name: {name!r} is not a plain directory name: use letters, digits, '.', '_' and '-'")
    return problems


def _run_sections(data: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    benchmarks = _mapping(_mapping(data, "driver"), "benchmarks")
    # A command beside it is told as what is wrong with the two.
    benchmarks = {name: benchmark for name, benchmark in benchmarks.items() if not has_command(benchmark)}
    sections = {str(name): benchmark.get("run") for name, benchmark in benchmarks.items() if isinstance(benchmark, dict)}
    return {name: run for name, run in sections.items() if isinstance(run, dict) and run}


def _run_problems(name: str, run: Mapping[str, Any], data: Mapping[str, Any]) -> list[str]:
    prefix = f"driver.benchmarks.{name}.run"
    problems = [f"{prefix}.{key}: is filled in by the submission: remove it" for key in sorted(FILLED_IN & run.keys())]
    agent = run.get("agent")
    if (agent.get("type") if isinstance(agent, dict) else agent) == COMMAND:
        problems.append(f"{prefix}.agent: a command is no run: write driver.benchmarks.{name}.command instead of run")
    policy = _mapping(data, "driver").get("policy_model")
    given = [key for key in POLICY_KEYS if key in run]
    if policy is not None:
        problems += [f"{prefix}.{key}: driver.policy_model names the model already: remove one of the two" for key in given]
    elif "policy_api_key" in run and not _is_variable(run["policy_api_key"]):
        problems.append(f"{prefix}.policy_api_key: a key does not belong into a file: write host:VARIABLE or runtime:VARIABLE")
    services = _mapping(data, "services")
    problems += [f"{prefix}.{problem}" for problem in reference_problems(run, sorted(map(str, services)))]
    facts = {str(service): {"url": UNKNOWN_PORT_URL, "model": "model", "port": "1"} for service in services}
    checked = {key: value for key, value in fill_references(run, facts).items() if key not in FILLED_IN}
    try:
        RunSettings.model_validate({**checked, "output_jsonl_fpath": _PLACEHOLDER})
    except ValidationError as error:
        problems += problems_of(error, RunSettings, prefix=prefix)
    return problems


def _is_variable(value: Any) -> bool:
    try:
        return isinstance(value, str) and parse_env(value).source is not EnvSource.LIT
    except ValueError:
        return False


def _variable_problems(config: SubmitConfig, environ: Mapping[str, str]) -> list[str]:
    maps = {"driver.env": config.driver.env}
    for name, service in config.services.items():
        if not isinstance(service, ExternalService):
            maps[f"services.{name}.env"] = service.env
    for name in config.driver.benchmarks:
        key = config.driver.benchmarks[name].run.get("policy_api_key")
        if key is not None:
            maps[f"driver.benchmarks.{name}.run.policy_api_key"] = {"policy_api_key": key}
    return [
        f"{path}: the submitting shell has no variable {variable}"
        for path, entries in maps.items()
        for variable in missing_host_variables(entries, environ)
    ]


def _mapping(data: Mapping[str, Any], key: str) -> dict[Any, Any]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}

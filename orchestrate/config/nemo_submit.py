"""A submit YAML as NeMo Gym 0.7.0 writes it, in this project's keys; what has no counterpart is a problem by name. Pure.

Only keys that NeMo Gym has and this project has not are touched here, so a YAML of our own passes through as it stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from orchestrate.config.commands import has_command
from orchestrate.config.nemo_gym import from_nemo_gym

#: Keys without a counterpart: the value that changes nothing and may stay, and what to do instead of any other.
_Unsupported = Mapping[str, tuple[tuple[Any, ...], str]]

_DRIVER: Final[_Unsupported] = {
    "container": (
        (None,),
        "the collector runs on the node itself, by compute.NAME.python; it is for a benchmark's command",
    ),
    "gym_install": ((None,), "install NeMo Gym where its servers are started, and use agent nemo_gym"),
    "policy_host": (
        ("localhost", "127.0.0.1"),
        "a service runs on the first node of its pool, and its address is found by the job",
    ),
    "policy_model_type": ((), "run.agent says how the model is asked: openai_chat, openai_responses or nemo_gym"),
    "mounts": (([],), "the collector runs in no container; only a benchmark's command does"),
}
_VLLM: Final[_Unsupported] = {
    "number_of_instances": ((1,), "one job has one instance; give the benchmark more shards"),
    "use_ray_serve": ((False,), "one job has one instance; give the benchmark more shards"),
    "data_parallel_rpc_port": ((13345,), "one job has one instance"),
    "pre_command": (("",), "write the service as type: command, with both in its command"),
}
_SERVICE_TYPES: Final[Mapping[str, str]] = {
    "ray": "Ray is not started; a service of one node needs none",
    "vllm_pd": "prefill and decode are not served apart; write the router as type: external or type: command",
}
#: Keys of the driver that commands of benchmarks use.
_FOR_COMMANDS: Final = frozenset({"container", "mounts"})
_OTEL: Final = "telemetry is not exported: remove the section, or set otel.enabled: false"


class TranslatedSubmit(NamedTuple):
    """The YAML's data in this project's form, and what of it cannot be honoured."""

    data: dict[str, Any]
    problems: list[str]


def from_nemo_submit(raw: Mapping[str, Any]) -> TranslatedSubmit:
    """``raw`` with what NeMo Gym writes differently put right."""
    problems: list[str] = []
    data = dict(raw)
    otel = data.pop("otel", None)
    if isinstance(otel, Mapping) and otel.get("enabled") is not False:
        problems.append(f"otel: is not supported: {_OTEL}")
    compute = data.get("compute")
    only = next(iter(compute)) if isinstance(compute, Mapping) and len(compute) == 1 else None
    if isinstance(services := data.get("services"), Mapping):
        data["services"] = {name: _service(f"services.{name}", entry, only, problems) for name, entry in services.items()}
    if isinstance(driver := data.get("driver"), Mapping):
        data["driver"] = _driver(driver, problems)
    return TranslatedSubmit(data, problems)


def _service(path: str, entry: Any, compute: Any, problems: list[str]) -> Any:
    if not isinstance(entry, Mapping):
        return entry
    if (kind := entry.get("type")) in _SERVICE_TYPES:
        problems.append(f"{path}.type: {kind} is not supported: {_SERVICE_TYPES[str(kind)]}")
    found = _without(entry, _VLLM, path, problems)
    placement = found.get("placement")
    if placement is not None and placement == compute:
        del found["placement"]
    check = found.get("health_check")
    if isinstance(check, Mapping) and {"port", "timeout_seconds"} & check.keys():
        if check.get("port") not in {None, entry.get("port")}:
            problems.append(f"{path}.health_check.port: must be the service's own port")
        if "timeout_seconds" in check:
            found["ready_timeout_s"] = check["timeout_seconds"]
        found["health_check"] = {key: value for key, value in check.items() if key not in {"port", "timeout_seconds"}}
    return found


def _driver(entry: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    benchmarks = entry.get("benchmarks")
    has_commands = isinstance(benchmarks, Mapping) and any(has_command(benchmark) for benchmark in benchmarks.values())
    kept = _FOR_COMMANDS if has_commands else frozenset[str]()
    found = _without(entry, {key: value for key, value in _DRIVER.items() if key not in kept}, "driver", problems)
    if isinstance(benchmarks, Mapping):
        found["benchmarks"] = {
            name: _benchmark(f"driver.benchmarks.{name}", benchmark, problems) for name, benchmark in benchmarks.items()
        }
    return found


def _benchmark(path: str, entry: Any, problems: list[str]) -> Any:
    if not isinstance(entry, Mapping):
        return entry
    # What NeMo Gym writes for none.
    found = {key: value for key, value in entry.items() if (key, value) not in (("command", ""), ("prepare", {}))}
    if isinstance(prepare := found.get("prepare"), Mapping) and "command" not in prepare:
        told = "write prepare: {command: ...} that makes the file of run.input_jsonl_fpath"
        problems.append(f"{path}.prepare: a map of overrides is not supported: NeMo Gym's own command is not run; {told}")
        del found["prepare"]
    if "resumable" in found:
        found["requeue"] = {**_requeue(f"{path}.resumable", found.pop("resumable"), problems), **(found.get("requeue") or {})}
    if isinstance(run := found.get("run"), Mapping):
        found["run"], unfit = from_nemo_gym(run)
        problems += [f"{path}.run.{problem}" for problem in unfit]
    return found


def _requeue(path: str, value: Any, problems: list[str]) -> dict[str, Any]:
    match value:
        case True:
            return {}
        case False | None:
            return {"max_requeues": 0}
        case Mapping() if not value.keys() - {"max_retries", "max_walltime"}:
            names: Mapping[str, str] = {"max_retries": "max_requeues", "max_walltime": "max_walltime"}
            return {names[key]: item for key, item in value.items()}
        case _:
            problems.append(f"{path}: must be true, false, or a map of max_retries and max_walltime")
            return {}


def _without(entry: Mapping[str, Any], unsupported: _Unsupported, path: str, problems: list[str]) -> dict[str, Any]:
    """``entry`` without the keys of ``unsupported``, each of which is a problem unless its value changes nothing."""
    for key, (harmless, instead) in unsupported.items():
        if key in entry and not any(entry[key] == value and type(entry[key]) is type(value) for value in harmless):
            problems.append(f"{path}.{key}: is not supported: {instead}")
    return {key: value for key, value in entry.items() if key not in unsupported}
